"""The backends, each imported when a model may use it."""

from collections.abc import Callable
from typing import Any

from lmi_core.backend import Backend
from lmi_core.hookspecs import hookimpl
from lmi_core.plugins.registry import Lazy

BACKENDS = (
    Lazy("lmi_plugins.backends.scripted:ScriptedBackend", "scripted"),
    Lazy("lmi_plugins.backends.lmi_dist:LmiDistBackend", "lmi-dist", ("lmi_dist",)),
    Lazy("lmi_plugins.backends.vllm:VllmBackend", "vllm", auto_priority=10),
    Lazy(
        "lmi_plugins.backends.trtllm:TrtllmBackend",
        "trtllm",
        ("trt-llm", "tensorrt-llm", "tensorrt_llm", "tensorrtllm"),
    ),
    Lazy("lmi_plugins.backends.torch:TorchBackend", "torch", ("scheduler", "hf-accelerate"), auto_priority=0),
)


@hookimpl
def lmi_register_backends(register: Callable[[type[Backend[Any]] | Lazy], None]) -> None:
    for backend in BACKENDS:
        register(backend)
