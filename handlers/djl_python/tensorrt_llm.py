"""`TRTLLMService` and `handle`, over the backend `trtllm`."""

from collections.abc import Mapping
from typing import Any, ClassVar

from djl_python.huggingface import HuggingFaceService, ServiceFunctions

__all__ = ["TRTLLMService", "handle", "register_adapter", "unregister_adapter", "update_adapter"]


class TRTLLMService(HuggingFaceService):
    """A service whose `auto` backend is `trtllm`, as in TensorRT-LLM's container."""

    default_rolling_batch: ClassVar[str] = "trtllm"

    def initialize(self, properties: Mapping[str, Any]) -> None:
        """Load the model. Raise ConfigurationError if it cannot be loaded."""
        chosen = properties.get("rolling_batch", "auto")
        super().initialize({**properties, "rolling_batch": "trtllm" if chosen == "auto" else chosen})


_functions = ServiceFunctions(TRTLLMService())
_service = _functions.service
handle = _functions.handle
register_adapter = _functions.register_adapter
update_adapter = _functions.update_adapter
unregister_adapter = _functions.unregister_adapter
