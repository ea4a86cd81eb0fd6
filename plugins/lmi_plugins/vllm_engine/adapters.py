"""The LoRA adapters of a vLLM engine, by name."""

import itertools
import json
from collections.abc import Collection, Mapping
from contextlib import suppress
from pathlib import Path

from lmi_core.errors import AdapterNotFound, ConfigurationError, InvalidAdapter
from lmi_core.script.formatters.model_code import ADAPTER_WEIGHTS
from lmi_plugins.vllm_engine.cpu_adapters import check_adapters
from lmi_plugins.vllm_engine.engine import VllmEngine
from lmi_plugins.vllm_engine.library import LoRARequest
from lmi_plugins.vllm_engine.output_layer import OutputLayerAdapters


def _refuse_long(folder: Path) -> None:
    """Raise InvalidAdapter for LongLoRA, whose scaled positions vLLM no longer knows and would silently leave out."""
    with suppress(OSError, ValueError):  # for vLLM to complain of
        config = json.loads((folder / ADAPTER_WEIGHTS).read_bytes())
        if isinstance(config, dict) and config.get("context_length"):
            raise InvalidAdapter(f"LoRA with context_length is not supported. Given: {config['context_length']}")


class VllmAdapters:
    """The adapters that requests may name.

    vLLM knows each by a number. Requests that run with one that is replaced or unloaded keep it until they end.
    """

    def __init__(self, engine: VllmEngine) -> None:
        self._engine = engine
        self._numbers = itertools.count(1)
        self._requests: dict[str, LoRARequest] = {}
        self._of_output_layer = OutputLayerAdapters()

    @property
    def names(self) -> Collection[str]:
        return self._requests.keys()

    async def load_all(self, folders: Mapping[str, Path]) -> None:
        """Load the adapters of a model directory. Raise ConfigurationError where one does not fit."""
        for name, folder in folders.items():
            try:
                await self.load(name, folder)
            except InvalidAdapter as error:
                raise ConfigurationError(f"adapter {name}: {error.message}") from error

    async def load(self, name: str, folder: Path) -> None:
        """Load an adapter, in place of one of the same name. Raise InvalidAdapter where it does not fit."""
        if (reason := check_adapters()) is not None:
            raise InvalidAdapter(reason)
        _refuse_long(folder)
        request = LoRARequest(name, next(self._numbers), str(folder))
        try:
            await self._engine.vllm.add_lora(request)
        except Exception as error:  # of whatever class the engine's own process raised
            raise InvalidAdapter(f"{folder} cannot be loaded: {' '.join(str(error).split())}") from error
        self._of_output_layer.add(name, folder)
        self._requests[name] = request

    def unload(self, name: str) -> None:
        """Forget an adapter. Raise AdapterNotFound where there is none."""
        if name not in self._requests:
            raise AdapterNotFound.of(name, self._requests)
        del self._requests[name]

    def check_prompt_log_probs(self) -> None:
        """Raise InvalidParameter if vLLM may compute those of a prompt wrongly beside the adapters that it has."""
        self._of_output_layer.refuse_prompt_log_probs()

    def find(self, name: str | None) -> LoRARequest | None:
        """Return what vLLM is told of an adapter."""
        return None if name is None else self._requests[name]
