"""Aliases of `djl_python.services`: the model function of the backend `trtllm`, and its service."""

from djl_python.services.service_functions import TRTLLMService, tensorrt_llm

_service = tensorrt_llm.service
handle = tensorrt_llm.handle
register_adapter = tensorrt_llm.register_adapter
update_adapter = tensorrt_llm.update_adapter
unregister_adapter = tensorrt_llm.unregister_adapter

__all__ = ["TRTLLMService", "handle", "register_adapter", "unregister_adapter", "update_adapter"]
