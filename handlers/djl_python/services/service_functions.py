"""The functions of `djl_python.huggingface` and `djl_python.tensorrt_llm` as whole scripts."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

from djl_python.services.hugging_face import HuggingFaceService
from lmi_core.script.djl_names.inputs import Input
from lmi_core.script.djl_names.outputs import Output


class TRTLLMService(HuggingFaceService):
    """A service whose `auto` backend is `trtllm`, as in TensorRT-LLM's container."""

    default_rolling_batch: ClassVar[str] = "trtllm"

    def initialize(self, properties: Mapping[str, Any]) -> None:
        """Load the model. Raise ConfigurationError if it cannot be loaded."""
        chosen = properties.get("rolling_batch", "auto")
        super().initialize({**properties, "rolling_batch": "trtllm" if chosen == "auto" else chosen})


class ServiceFunctions:
    """The functions of a script's module, over one service that the first call initializes."""

    def __init__(self, service: HuggingFaceService) -> None:
        self.service = service

    def handle(self, inputs: Input) -> Output | None:
        """Load the model on the call without content, and answer other calls."""
        if not self.service.initialized:
            self.service.initialize(inputs.get_properties())
        return None if inputs.is_empty() else self.service.inference(inputs)

    def register_adapter(self, inputs: Input) -> Output:
        """Load the adapter `name` from the folder `src`. Raise ValueError or InvalidAdapter if this fails."""
        name, folder = inputs.get_property("name"), inputs.get_property("src")
        if not name or not folder or not Path(folder).is_dir():
            raise ValueError(f"an adapter needs a `name` and a folder as `src`. Given: {name!r}, {folder!r}")
        self.service.add_lora(name, name, folder)
        self.service.adapter_registry[name] = inputs
        return Output()

    def update_adapter(self, inputs: Input) -> Output:
        """Load the adapter `name` again, from the folder `src`."""
        return self.register_adapter(inputs)

    def unregister_adapter(self, inputs: Input) -> Output:
        """Unload the adapter `name`. Raise AdapterNotFound for an unknown name."""
        name = inputs.get_property("name") or ""
        self.service.remove_lora(name)
        self.service.adapter_registry.pop(name, None)
        return Output()


huggingface = ServiceFunctions(HuggingFaceService())
tensorrt_llm = ServiceFunctions(TRTLLMService())
