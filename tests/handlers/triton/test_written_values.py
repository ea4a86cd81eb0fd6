from typing import Any

import pytest

from lmi_core.generation.parameters import ExtendedParameters
from lmi_handlers.triton.payload import read_scalar, read_written


@pytest.mark.parametrize(
    ("text", "value"),
    [("16", 16), ("-1", -1), ("+2", 2), (" 0.7 ", 0.7), (".5", 0.5), ("5.", 5.0), ("1e-3", 0.001), ("TRUE", True)],
)
def test_values(text: str, value: object) -> None:
    found = read_scalar(text)
    assert (found, type(found)) == (value, type(value))


@pytest.mark.parametrize("text", ["", "hot", "nan", "inf", "1_000", "0x10", "١٦", "1e1000", "9" * 65, "yes", "[1]"])
def test_other_texts(text: str) -> None:
    assert read_scalar(text) == text


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("temperature", "0.7", 0.7),
        ("logprobs", "1", 1),
        ("stop_token_ids", "2", 2),
        ("guided_regex", "2", "2"),
        ("stop_sequences", "2", "2"),
        ("guided_json", "2", "2"),
        ("nobody_knows_this", "2", "2"),
    ],
)
def test_fields(name: str, text: str, value: Any) -> None:
    assert read_written({name: text}, ExtendedParameters.model_fields) == {name: value}
