"""The JSON of TGI's errors, by whose types its clients raise: for TGI's routes and `option.tgi_compat`."""

from collections.abc import Mapping

from lmi_core.errors import LmiError

ERROR_TYPES: Mapping[str, str] = {
    "invalid_payload": "validation",
    "invalid_parameter": "validation",
    "context_length_exceeded": "validation",
    "payload_too_large": "validation",
    "model_not_found": "validation",
    "adapter_not_found": "validation",
    "model_not_ready": "healthcheck",
    "backend_unhealthy": "healthcheck",
    "overloaded": "overloaded",
    "generation_timeout": "incomplete_generation",
    "internal": "internal",
}


def error_object(error: LmiError) -> dict[str, str]:
    return {"error": error.message, "error_type": ERROR_TYPES.get(error.kind, "generation")}
