"""JSON with integers of more than 64 bits."""

import orjson
import pytest

from lmi_core.payloads.exact_json import exact_json, writable

LONG = '{"a":[1234567890123456789012,-98765432109876543210,1.5],"b":"é"}'


@pytest.mark.parametrize("text", [LONG, '{"a":18446744073709551615}', '{"a":1}', "[]", '"1234567890123456789012"'])
def test_every_digit_is_kept(text: str) -> None:
    assert orjson.dumps(writable(exact_json(text))).decode() == text


def test_too_many_digits_are_a_float() -> None:
    assert isinstance(exact_json("1" + "0" * 300 + ".5"), float)
    with pytest.raises(orjson.JSONDecodeError):
        exact_json("9" * 5000)


@pytest.mark.parametrize("text", ["", "1234567890123456789012,", "{'a': 1}", "NaN 1234567890123456789012"])
def test_what_is_no_json(text: str) -> None:
    with pytest.raises(orjson.JSONDecodeError):
        exact_json(text)
