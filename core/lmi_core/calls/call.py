"""The request of a client."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Self

import orjson

from lmi_core.calls.access import Reach
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
    key: str | None = None  # the holder of the client's API key; None where there are none, or of an operator
    attributes: Mapping[str, str] = field(default_factory=dict)  # properties from headers of their own, by name
    parsed: JsonBody | None = field(default=None, repr=False, compare=False)  # the body's JSON, read by `json`
    reach: Reach = field(default_factory=Reach)  # what the client reaches, told to routes with an `answer` function

    def __post_init__(self) -> None:
        if self.parsed is None or self.parsed.body is not self.body:  # it came from `replace`
            object.__setattr__(self, "parsed", JsonBody(self.body))

    def text(self) -> str:
        """Return the body as text. Raise InvalidPayload where it is not UTF-8."""
        try:
            return self.body.decode()
        except UnicodeDecodeError as error:
            raise InvalidPayload(f"the body must be UTF-8 text: {error}") from None

    def json(self) -> Any:
        """Return the body's JSON, which is shared: copy before changing it. Raise InvalidPayload for other bodies.

        Raise PayloadTooLarge for more than the server takes.
        """
        assert self.parsed is not None
        return self.parsed.value

    def parse_json(self, max_members: int) -> None:
        """Parse the body's JSON for `json`, which raises the error if it is not valid or has too many members."""
        assert self.parsed is not None
        self.parsed.parse(max_members)

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
