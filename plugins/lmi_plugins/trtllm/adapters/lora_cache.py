"""The LoRA adapters that requests bring, by task id."""

from hashlib import sha256

from lmi_core.errors import InvalidAdapter, InvalidParameter
from lmi_core.generation.tensors import Tensor
from lmi_plugins.torch_engine.engine.engine import Engine
from lmi_plugins.trtllm.adapters.lora_tensors import adapter_tensors
from lmi_plugins.trtllm.requests.inference_request import InferenceRequest

PREFIX = "lora_task_id="


class LoraCache:
    """Adapters by task id, in the engine's own store, which evicts the least recently used one."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._digests: dict[str, bytes] = {}  # of what was loaded by each name, also of what was evicted since

    def adapter(self, request: InferenceRequest) -> str | None:
        """Return the name of the request's adapter, loaded if the request brings it; raise InvalidParameter."""
        if "lora_task_id" not in request.tensors:
            return None
        name = f"{PREFIX}{request.tensors['lora_task_id'].array().item()}"
        if "lora_weights" in request.tensors:
            self._load(name, request.tensors["lora_weights"], request.tensors["lora_config"])
        elif name not in self._names:
            raise InvalidParameter(
                "`lora_task_id` must be cached, or be given with `lora_weights` and `lora_config`. Given: "
                f"{name.removeprefix(PREFIX)}, cached: {', '.join(map(_task_id, self._names)) or 'none'}"
            )
        return name

    @property
    def _names(self) -> list[str]:
        return [name for name in self._engine.adapters.names if name.startswith(PREFIX)]

    def _load(self, name: str, weights: Tensor, config: Tensor) -> None:
        """Load an adapter unless it is there with the same weights already."""
        digest = sha256(weights.dtype.encode() + weights.data + config.data).digest()
        if name in self._names and self._digests.get(name) == digest:
            return
        source = adapter_tensors(weights, config, self._engine.adapters.modules)
        try:
            self._engine.load_adapter(name, source)
        except InvalidAdapter as error:
            raise InvalidParameter(f"`lora_weights` cannot be used: {error.message}") from None
        self._digests = {known: self._digests[known] for known in self._names if known != name} | {name: digest}


def _task_id(name: str) -> str:
    return name.removeprefix(PREFIX)
