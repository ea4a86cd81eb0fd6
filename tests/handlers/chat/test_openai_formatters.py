"""The end of a sequence in the answers of OpenAI's dialects."""

import pytest

from lmi_core.generation.output import Token
from lmi_core.generation.parameters import ExtendedParameters
from lmi_handlers.chat.openai_formatters import stop_reason


@pytest.mark.parametrize(
    ("stop_sequence", "last", "reason"),
    [("end", 7, "end"), (None, 7, 7), (None, 8, None), (None, None, None)],
)
def test_stop_reason(stop_sequence: str | None, last: int | None, reason: str | int | None) -> None:
    tokens = [] if last is None else [Token(5, "a"), Token(last, "b")]
    assert stop_reason(ExtendedParameters(stop_token_ids=[5, 7]), stop_sequence, tokens) == reason
