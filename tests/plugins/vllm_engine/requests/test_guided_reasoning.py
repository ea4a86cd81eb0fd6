"""Guides that leave a reasoning before the answer free."""

import re
from typing import Any

import pytest

from lmi_core.generation.parameters import ExtendedParameters
from lmi_plugins.vllm_engine.requests.sampling import sampling_params
from tests.plugins.vllm_server import STORY, VllmServer

GUIDES: list[dict[str, Any]] = [
    {"guided_choice": ["apple", "pear"]},
    {"guided_json": {"type": "object", "properties": {"age": {"type": "integer"}}, "required": ["age"]}},
    {"guided_regex": "[0-9]{4}"},
    {"guided_grammar": 'root ::= "yes" | "no"'},
    {"guided_structural_tag": {"format": {"type": "tag", "begin": "<", "content": {"type": "any_text"}, "end": ">"}}},
]


@pytest.mark.parametrize("guide", GUIDES)
@pytest.mark.parametrize("start", ["", "<think>"])
def test_vllm_takes_it(guide: dict[str, Any], start: str) -> None:
    from vllm.v1.structured_output.backend_xgrammar import validate_xgrammar_grammar

    sampling = sampling_params(ExtendedParameters(**guide, guided_reasoning=[start, "</think>"]), 0, False)
    assert sampling.structured_outputs is not None
    assert sampling.structured_outputs.structural_tag is not None
    validate_xgrammar_grammar(sampling)


@pytest.mark.asyncio(loop_scope="session")
@pytest.mark.timeout(300)
async def test_text(vllm: VllmServer) -> None:
    """One letter ends the reasoning."""
    parameters = {"guided_regex": "[0-9]{4}", "guided_reasoning": ["", "e"], "max_new_tokens": 300}
    answer = await vllm.ask(STORY, **parameters)
    _, end, guided = answer["generated_text"].partition("e")
    assert (end, answer["details"]["finish_reason"]) == ("e", "eos_token")
    assert re.fullmatch(r"[ \n]{0,2}[0-9]{4}", guided)
