"""Aliases of `djl_python.services`: a model function that generates with the backend, and its service."""

from djl_python.services.hugging_face import HuggingFaceService
from djl_python.services.service_functions import huggingface
from djl_python.services.service_utils import StopWord

_service = huggingface.service
handle = huggingface.handle
register_adapter = huggingface.register_adapter
update_adapter = huggingface.update_adapter
unregister_adapter = huggingface.unregister_adapter

__all__ = ["HuggingFaceService", "StopWord", "handle", "register_adapter", "unregister_adapter", "update_adapter"]
