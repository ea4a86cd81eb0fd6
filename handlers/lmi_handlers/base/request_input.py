"""Conversion of a request that an input formatter built into LMI's schema."""

from typing import Any

from lmi_core.script.formatters.request_io import RequestInput


def request_payload(request: RequestInput) -> dict[str, Any]:
    """Return the request body in LMI's schema for the object."""
    parameters = dict(request.parameters)
    payload: dict[str, Any] = {"inputs": getattr(request, "input_text", None)}
    if "stream" in parameters:
        payload["stream"] = parameters.pop("stream")
    return payload | {"parameters": parameters}
