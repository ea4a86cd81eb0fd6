"""The JSON of TGI's errors, whose types determine its clients' exceptions; for TGI's routes and `option.tgi_compat`."""

from collections.abc import Mapping

from typing_extensions import TypedDict

from lmi_core.errors import LmiError

ERROR_TYPES: Mapping[str, str] = {
    "invalid_payload": "validation",
    "invalid_parameter": "validation",
    "context_length_exceeded": "validation",
    "payload_too_large": "validation",
    "body_timeout": "validation",
    "unsupported_encoding": "validation",
    "unauthorized": "unauthorized",  # not a type of TGI's own: its clients then choose the exception by status
    "forbidden": "forbidden",
    "model_not_found": "validation",
    "adapter_not_found": "validation",
    "model_not_ready": "healthcheck",
    "backend_unhealthy": "healthcheck",
    "overloaded": "overloaded",
    "rate_limited": "overloaded",
    "generation_timeout": "incomplete_generation",
    "internal": "internal",
}


TgiError = TypedDict("TgiError", {"error": str, "error_type": str})


def error_object(error: LmiError) -> TgiError:
    return {"error": error.message, "error_type": ERROR_TYPES.get(error.kind, "generation")}
