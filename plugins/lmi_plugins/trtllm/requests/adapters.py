"""The LoRA adapters that requests bring, or name by the task id of an earlier request."""

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from hashlib import sha256
from typing import NamedTuple

from lmi_core.errors import InvalidAdapter, InvalidParameter
from lmi_plugins.torch_engine.messages.requests import AdapterTensors
from lmi_plugins.trtllm.requests.inference_request import InferenceRequest
from lmi_plugins.trtllm.requests.translation import tensor_data

PREFIX = "lora_task_id="


class RequestAdapter(NamedTuple):
    """A request's adapter."""

    task_id: str
    source: AdapterTensors | None  # None: it must be cached
    name: str = ""  # of the source in engines, where a task id can have several: the name has a digest of the weights

    @classmethod
    def of(cls, request: InferenceRequest) -> "RequestAdapter | None":
        """Return the adapter of a request, if it has one."""
        if "lora_task_id" not in request.tensors:
            return None
        task_id = str(request.tensors["lora_task_id"].array().item())
        if "lora_weights" not in request.tensors:
            return cls(task_id, None)
        weights, config = request.tensors["lora_weights"], request.tensors["lora_config"]
        tensors = {"lora_weights": tensor_data(weights, list(weights.shape))}
        source = AdapterTensors(tensors, {"lora_config": config.array().tolist()})
        digest = sha256(weights.dtype.encode() + weights.data + config.data).hexdigest()
        return cls(task_id, source, f"{PREFIX}{task_id}@{digest}")


class CachedAdapters:
    """The latest adapter of each task id; engines evict the least recently used ones by themselves."""

    def __init__(self) -> None:
        self._latest: dict[str, str] = {}  # the name in engines, by task id

    def name_of(self, adapter: RequestAdapter, names: Collection[str]) -> str:
        """Return an adapter's name in the engines, which hold `names`. Raise InvalidParameter if they lack it."""
        if adapter.source is not None:
            return adapter.name
        name = self._latest.get(adapter.task_id, "")
        if name not in names:
            raise self.missing(adapter, names)
        return name

    def missing(self, adapter: RequestAdapter, names: Collection[str]) -> InvalidParameter:
        """Return the error for an adapter without a source that no engine has."""
        ids = ", ".join(task_id for task_id, name in self._latest.items() if name in names) or "none"
        return InvalidParameter(
            "`lora_task_id` must be cached, or be given with `lora_weights` and `lora_config`. Given: "
            f"{adapter.task_id}, cached: {ids}"
        )

    def note(self, adapter: RequestAdapter, name: str, names: Collection[str]) -> None:
        """Record that an adapter is in an engine, and forget adapters that are in none."""
        self._latest = {task_id: each for task_id, each in self._latest.items() if each in names}
        self._latest[adapter.task_id] = name


@contextmanager
def adapter_errors() -> Iterator[None]:
    """Name the tensor in the errors about an adapter that cannot be loaded."""
    try:
        yield
    except InvalidAdapter as error:
        raise InvalidParameter(f"`lora_weights` cannot be used: {error.message}") from None
