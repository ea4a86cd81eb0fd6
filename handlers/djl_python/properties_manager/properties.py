"""Alias of `lmi_core.script.services.service_properties`."""

from lmi_core.script.services.service_properties import (
    RollingBatchEnum,
    StreamingEnum,
    is_rolling_batch_enabled,
    is_streaming_enabled,
)
from lmi_core.script.services.service_properties import ServiceProperties as Properties

__all__ = ["Properties", "RollingBatchEnum", "StreamingEnum", "is_rolling_batch_enabled", "is_streaming_enabled"]
