"""A request that an input formatter built, in LMI's schema, which its own routes read."""

from typing import Any

from lmi_core.script.formatters.request_io import RequestInput


def request_payload(request: RequestInput) -> dict[str, Any]:
    """Return the body in LMI's schema that asks for what the object holds."""
    parameters = dict(request.parameters)
    payload: dict[str, Any] = {"inputs": getattr(request, "input_text", None)}
    if "stream" in parameters:
        payload["stream"] = parameters.pop("stream")
    return payload | {"parameters": parameters}
