from typing import Any

import pytest
from pydantic import Field

from lmi_core.errors import InvalidPayload
from lmi_core.payloads.tolerant_payload import MAX_NAMES_COMPARED, TolerantPayload, take_known


class Payload(TolerantPayload):
    inputs: str
    limit: int | None = Field(None, alias="max")


def test_unknown_fields_are_dropped_and_named() -> None:
    payload, ignored = take_known(
        {"inputs": "a", "max": 3, "zzz": 1, "yyy": {}, "nothing": None}, Payload, strict=False
    )
    assert (payload.inputs, payload.limit, ignored) == ("a", 3, ("zzz", "yyy"))


@pytest.mark.parametrize(
    ("given", "strict", "message"),
    [
        ({"inputs": "a", "inptus": 1}, True, "`inptus` is not a field of this request. Did you mean `inputs`?"),
        ({"inputs": "a", "zzz": None}, True, "`zzz` is not a field of this request."),
        ({"inputs": 3, "zzz": 1}, False, "`inputs` must be a valid string. Given: 3"),
        ({"input": "a"}, False, "`inputs` is required. Did you send it as `input`?"),
        ({"zzz": "a"}, False, "`inputs` is required"),
        (
            {"inputs": "a", "output_formatter": "sse"},
            False,
            "`output_formatter` is not a field of this request: the model's option.output_formatter selects the "
            "output formatter",
        ),
        (
            {"inputs": "a", "session_id": "1"},
            True,
            "`session_id` is not a field of this request: sessions are named in a header, "
            "SageMaker's `SessionId` (docs/reference/sagemaker.md)",
        ),
    ],
)
def test_errors(given: dict[str, Any], strict: bool, message: str) -> None:
    with pytest.raises(InvalidPayload) as raised:
        take_known(given, Payload, strict)
    assert raised.value.message == message


def test_very_many_unknown_fields_are_not_compared() -> None:
    given = {f"input{i}": 1 for i in range(MAX_NAMES_COMPARED)} | {"inputz": 1}
    with pytest.raises(InvalidPayload, match=r"^`inputs` is required\. Did you send it as `input\d+`\?$"):
        take_known(given, Payload, False)
    with pytest.raises(InvalidPayload, match=r"^`inputs` is required$"):
        take_known({f"{i}": 1 for i in range(MAX_NAMES_COMPARED)} | {"inputz": 1}, Payload, False)


def test_schema_allows_what_is_dropped() -> None:
    schema = Payload.model_json_schema()
    assert schema["additionalProperties"] is True
    assert schema["properties"].keys() == {"inputs", "max"}
