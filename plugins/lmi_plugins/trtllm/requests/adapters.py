"""The LoRA adapters that requests bring, or name by the task id of an earlier request."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from hashlib import sha256
from typing import NamedTuple

from lmi_core.errors import InvalidAdapter, InvalidParameter
from lmi_plugins.torch_engine.messages.requests import AdapterTensors
from lmi_plugins.trtllm.requests.inference_request import InferenceRequest
from lmi_plugins.trtllm.requests.translation import tensor_data

PREFIX = "lora_task_id="


class RequestAdapter(NamedTuple):
    """A request's adapter in the engine."""

    name: str
    source: AdapterTensors | None  # None: it must be cached
    digest: bytes = b""  # of the source

    @classmethod
    def of(cls, request: InferenceRequest) -> "RequestAdapter | None":
        """Return the adapter of a request, if it has one."""
        if "lora_task_id" not in request.tensors:
            return None
        name = f"{PREFIX}{request.tensors['lora_task_id'].array().item()}"
        if "lora_weights" not in request.tensors:
            return cls(name, None)
        weights, config = request.tensors["lora_weights"], request.tensors["lora_config"]
        tensors = {"lora_weights": tensor_data(weights, list(weights.shape))}
        source = AdapterTensors(tensors, {"lora_config": config.array().tolist()})
        return cls(name, source, sha256(weights.dtype.encode() + weights.data + config.data).digest())


class CachedAdapters:
    """The digests of the adapters in one engine, which evicts the least recently used ones by itself."""

    def __init__(self) -> None:
        self._digests: dict[str, bytes] = {}

    def to_load(self, adapter: RequestAdapter, names: Iterable[str]) -> AdapterTensors | None:
        """Return what to load unless it is among the engine's adapters; raise InvalidParameter if nobody has it."""
        cached = [name for name in names if name.startswith(PREFIX)]
        if adapter.source is None and adapter.name not in cached:
            ids = ", ".join(name.removeprefix(PREFIX) for name in cached) or "none"
            raise InvalidParameter(
                "`lora_task_id` must be cached, or be given with `lora_weights` and `lora_config`. Given: "
                f"{adapter.name.removeprefix(PREFIX)}, cached: {ids}"
            )
        if adapter.name in cached and adapter.digest in (b"", self._digests.get(adapter.name)):
            return None
        self._digests = {name: digest for name, digest in self._digests.items() if name in cached}
        return adapter.source

    def note(self, adapter: RequestAdapter) -> None:
        """Record that an adapter was loaded."""
        self._digests[adapter.name] = adapter.digest


@contextmanager
def adapter_errors() -> Iterator[None]:
    """Name the tensor in the errors about an adapter that cannot be loaded."""
    try:
        yield
    except InvalidAdapter as error:
        raise InvalidParameter(f"`lora_weights` cannot be used: {error.message}") from None
