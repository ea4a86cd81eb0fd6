"""The request of a client."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Self

import orjson

from lmi_core.calls.json_body import JsonBody
from lmi_core.errors import InvalidPayload
from lmi_core.payloads.payload import check_object


@dataclass(frozen=True, slots=True)
class Call:
    """One HTTP request with its whole body; header names are case-insensitive."""

    path_parameters: Mapping[str, str]
    headers: Mapping[str, str]
    body: bytes
    request_id: str
    path: str = ""
    query: Mapping[str, str] = field(default_factory=dict)
    peer: str = ""  # the client's IP address
    attributes: Mapping[str, str] = field(default_factory=dict)  # properties from headers of their own, by name
    parsed: JsonBody | None = field(default=None, repr=False, compare=False)  # the body's JSON, read by `json`

    def __post_init__(self) -> None:
        if self.parsed is None or self.parsed.body is not self.body:  # it came from `replace`
            object.__setattr__(self, "parsed", JsonBody(self.body))

    def json(self) -> Any:
        """Return the body's JSON, which is shared: copy before changing it. Raise InvalidPayload for other bodies."""
        assert self.parsed is not None
        return self.parsed.value

    def json_object(self) -> dict[str, Any]:
        """Return the body's JSON object, which is shared. Raise InvalidPayload where the body is not a JSON object."""
        return check_object(self.json())

    def with_json(self, value: Any) -> Self:
        """Return the call with another JSON body. Raise InvalidPayload where the value cannot be written as JSON."""
        try:
            body = orjson.dumps(value)
        except orjson.JSONEncodeError as error:  # orjson reads deeper nesting than it writes
            raise InvalidPayload(f"the body cannot be written as JSON: {error}") from None
        return replace(self, body=body, parsed=JsonBody(body, value))
