"""Alias of `djl_python.services.service_properties`."""

from djl_python.services.service_properties import (
    RollingBatchEnum,
    StreamingEnum,
    is_rolling_batch_enabled,
    is_streaming_enabled,
)
from djl_python.services.service_properties import ServiceProperties as Properties

__all__ = ["Properties", "RollingBatchEnum", "StreamingEnum", "is_rolling_batch_enabled", "is_streaming_enabled"]
