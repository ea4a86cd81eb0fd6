"""The checks of answers find events that the types of clients do not allow."""

from typing import Any

import pytest

from tests.documented_answers import AnswerCheck

CHUNK: dict[str, Any] = {"id": "1", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": []}
PLACED = {"output_index": 0, "sequence_number": 1}
ERROR = {"type": "object", "properties": {"error": {"type": "string"}}, "required": ["error"]}


@pytest.mark.parametrize(
    ("title", "allowed", "refused"),
    [
        ("ChatCompletionChunk", CHUNK, CHUNK | {"choices": [{"index": 0}]}),
        ("ChatCompletionChunk", {"error": "late"}, {"error": 1}),
        (
            "RawMessageStreamEvent",
            {"type": "content_block_stop", "index": 0},
            {"type": "content_block_stop", "index": "x"},
        ),
        (
            "ResponseStreamEvent",
            {"type": "response.output_text.delta", "delta": "a", "item_id": "i", "content_index": 0, "logprobs": []}
            | PLACED,
            {"type": "response.output_text.delta", "item_id": "i"} | PLACED,
        ),
    ],
)
def test_events_are_as_clients_say(title: str, allowed: object, refused: object) -> None:
    check = AnswerCheck({"anyOf": [{"type": "object", "title": title}, ERROR]}, {})
    assert check.faults(allowed) == []
    assert check.faults(refused)
