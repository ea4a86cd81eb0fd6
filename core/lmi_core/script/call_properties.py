"""A call's headers and attributes as the properties of an `Input`."""

from lmi_core.calls.call import Call
from lmi_core.script.djl_names.inputs import BATCH_SIZE


def call_properties(call: Call) -> dict[str, str]:
    """Return the headers, the attributes and the request's id; later ones override earlier ones."""
    given = [*call.headers.items(), *call.attributes.items()]
    properties = {_text(name): _text(value) for name, value in given}
    properties.pop(BATCH_SIZE, None)  # it would turn the call into a batch
    return properties | {"x-request-id": call.request_id}


def _text(value: str) -> str:
    """Return the text with invalid UTF-8 replaced."""
    return value.encode(errors="surrogateescape").decode(errors="replace")
