"""Aliases of `lmi_core.plugins.offline`: a handler without a server, and inputs to call it with."""

from lmi_core.plugins.offline.command import run
from lmi_core.plugins.offline.handler import (
    TestHandler,
    create_concurrent_batch_request,
    decode_encoded_output_binary,
    load_properties,
    update_properties_with_env_vars,
)
from lmi_core.plugins.offline.requests import (
    create_json_request,
    create_npz_request,
    create_numpy_request,
    create_request,
    create_text_request,
    extract_output_as_bytes,
    extract_output_as_input,
    extract_output_as_npz,
    extract_output_as_numpy,
    extract_output_as_string,
)

__all__ = [
    "TestHandler",
    "create_concurrent_batch_request",
    "create_json_request",
    "create_npz_request",
    "create_numpy_request",
    "create_request",
    "create_text_request",
    "decode_encoded_output_binary",
    "extract_output_as_bytes",
    "extract_output_as_input",
    "extract_output_as_npz",
    "extract_output_as_numpy",
    "extract_output_as_string",
    "load_properties",
    "run",
    "update_properties_with_env_vars",
]

if __name__ == "__main__":
    run()
