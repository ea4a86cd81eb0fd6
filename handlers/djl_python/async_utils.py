"""Alias of `lmi_core.script.djl_names.async_utils`."""

from lmi_core.script.djl_names.async_utils import (
    create_non_stream_output,
    create_stream_chunk_output,
    handle_streaming_response,
)

__all__ = ["create_non_stream_output", "create_stream_chunk_output", "handle_streaming_response"]
