"""Fields of requests and names of reasoning parsers, compared with vLLM's own server."""

import pytest
from pydantic import BaseModel
from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest
from vllm.entrypoints.openai.completion import protocol
from vllm.entrypoints.openai.responses import protocol as theirs
from vllm.reasoning import ReasoningParserManager

from lmi_core.parsing.reasoning.formats import FORMATS
from lmi_handlers.chat.request import ChatRequest
from lmi_handlers.completions.request import CompletionRequest
from lmi_handlers.fields.openai_tolerance import HINTS, REFUSED
from lmi_handlers.responses.request import REFUSED as RESPONSES_REFUSED
from lmi_handlers.responses.request import ResponsesRequest

NOT_HERE = {"hf", "hy_v4", "inkling", "muse_glimmer"}  # as docs/reference/openai.md says


@pytest.mark.parametrize(
    ("theirs", "ours"), [(ChatCompletionRequest, ChatRequest), (protocol.CompletionRequest, CompletionRequest)]
)
def test_every_field_is_known(theirs: type[BaseModel], ours: type[BaseModel]) -> None:
    known = ours.model_fields.keys() | HINTS | REFUSED.keys()
    assert theirs.model_fields.keys() - known <= {"guided_whitespace_pattern"}  # ignored as an unknown one


def test_every_field_of_a_response_is_known() -> None:
    known = ResponsesRequest.model_fields.keys() | HINTS | REFUSED.keys() | RESPONSES_REFUSED.keys()
    ignored = {"enable_response_messages"}  # and listed in the header, as any other
    assert theirs.ResponsesRequest.model_fields.keys() - known == ignored


def test_every_reasoning_parser_is_known() -> None:
    assert set(ReasoningParserManager.list_registered()) - FORMATS.keys() == NOT_HERE
