"""What a client sent."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Self

import orjson

from lmi_core.calls.json_body import JsonBody
from lmi_core.errors import InvalidPayload
from lmi_core.payloads.payload import check_object


@dataclass(frozen=True, slots=True)
class Call:
    """One HTTP request, read whole. Header names are matched without regard to case."""

    path_parameters: Mapping[str, str]
    headers: Mapping[str, str]
    body: bytes
    request_id: str
    path: str = ""
    query: Mapping[str, str] = field(default_factory=dict)
    peer: str = ""  # the IP address that it came from
    attributes: Mapping[str, str] = field(default_factory=dict)  # what a header of its own says of it, by name
    parsed: JsonBody | None = field(default=None, repr=False, compare=False)  # the body's JSON: ask `json` for it

    def __post_init__(self) -> None:
        if self.parsed is None or self.parsed.body is not self.body:  # `replace` hands on that of another body
            object.__setattr__(self, "parsed", JsonBody(self.body))

    def json(self) -> Any:
        """Return the body's JSON, which all who ask share: copy what is to be changed. Raise InvalidPayload."""
        assert self.parsed is not None
        return self.parsed.value

    def json_object(self) -> dict[str, Any]:
        """Return the body's JSON where it is an object, which all who ask share. Raise InvalidPayload."""
        return check_object(self.json())

    def with_json(self, value: Any) -> Self:
        """Return the call with that JSON as its body. Raise InvalidPayload where it cannot be written."""
        try:
            body = orjson.dumps(value)
        except orjson.JSONEncodeError as error:  # it reads deeper nesting than it writes
            raise InvalidPayload(f"the body cannot be taken: {error}") from None
        return replace(self, body=body, parsed=JsonBody(body, value))
