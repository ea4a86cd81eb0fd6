"""Special tokens that somebody looks for in the text, as parsers of tool calls do."""

import pytest

from lmi_core.generation.request import GenerationRequest
from lmi_core.serving.validation import validate
from tests.plugins.vllm_server import STORY, VllmServer

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.timeout(300)]


@pytest.mark.parametrize(("markers", "text"), [((), ""), (("<|user|>",), "<|user|><|user|>"), (("<|call|>",), "")])
async def test_special_tokens_that_are_markers_are_written(
    vllm: VllmServer, markers: tuple[str, ...], text: str
) -> None:
    parameters = {"max_new_tokens": 2, "logit_bias": {"3": 100.0}}
    request = validate(GenerationRequest(STORY, parameters, markers=markers), vllm.backend, "markers")
    steps = [step async for step in vllm.backend.generate(request) if step.sequence_index == 0]
    assert "".join(token.text for step in steps for token in step.tokens) == text
