"""A call's headers as the properties of an `Input`."""

from lmi_core.calls.call import Call
from lmi_core.script.djl_names.inputs import BATCH_SIZE

ATTRIBUTES_HEADER = "X-Amzn-SageMaker-Custom-Attributes"


def call_properties(call: Call) -> dict[str, str]:
    """Return the headers, the attributes in SageMaker's header for them (`a=b;c=d`) by name, and the request's id."""
    properties = {name: _text(value) for name, value in call.headers.items()}
    for name, value in call.headers.items():
        if name.lower() == ATTRIBUTES_HEADER.lower():
            properties |= _attributes(_text(value))
    properties.pop(BATCH_SIZE, None)  # which would make a batch of it
    return properties | {"x-request-id": call.request_id}


def _attributes(header: str) -> dict[str, str]:
    """What is no `name=value` has no name to be found by: it stays in the header's own property."""
    pairs = [attribute.partition("=") for attribute in header.split(";")]
    return {name.strip(): value.strip() for name, separator, value in pairs if separator and name.strip()}


def _text(value: str) -> str:
    """Bytes that are no UTF-8 cannot be sent on as text."""
    return value.encode(errors="surrogateescape").decode(errors="replace")
