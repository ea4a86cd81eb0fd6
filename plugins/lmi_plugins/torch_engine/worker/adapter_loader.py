"""Loading of adapters in a thread, so that running requests do not wait for it."""

from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from pathlib import Path
from typing import NamedTuple

from lmi_core.errors import AdapterNotFound, InvalidAdapter, LmiError
from lmi_plugins.torch_engine.adapters.store import Source
from lmi_plugins.torch_engine.engine.engine import Engine
from lmi_plugins.torch_engine.messages.protocol import AdapterAnswer, LoadAdapter, PinAdapter, UnloadAdapter, failure
from lmi_plugins.torch_engine.sequences.adapter import AdapterWeights

PATIENCE = 0.01  # seconds to wait before the worker checks for messages


class Loading(NamedTuple):
    """An adapter that is being read."""

    name: str
    source: Source
    weights: "Future[AdapterWeights]"


class AdapterLoader:
    """A loader that reads in its own thread, and changes the engine between steps, in the engine's thread."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._thread = ThreadPoolExecutor(1, "adapters")
        self._loading: dict[str, Loading] = {}  # by call
        self._answers: list[AdapterAnswer] = []

    @property
    def busy(self) -> bool:
        return bool(self._loading or self._answers)

    def load(self, call: LoadAdapter) -> None:
        """Start reading the adapter of a call."""
        source = Path(call.source) if isinstance(call.source, str) else call.source
        try:
            weights = self._thread.submit(self._engine.adapters.read, source)
        except AdapterNotFound as error:
            self._answer(call.call_id, error)
        else:
            self._loading[call.call_id] = Loading(call.name, source, weights)

    def pin(self, call: PinAdapter) -> None:
        """Pin or unpin the adapter of a call immediately."""
        try:
            self._engine.adapters.pin(call.name, call.pinned)
        except LmiError as error:
            self._answer(call.call_id, error)
        except Exception as error:  # the device's libraries may raise anything
            self._answer(call.call_id, InvalidAdapter(f"the adapter cannot be pinned: {type(error).__name__}: {error}"))
        else:
            self._answer(call.call_id)

    def unload(self, call: UnloadAdapter) -> None:
        """Remove the adapter of a call immediately."""
        try:
            self._engine.unload_adapter(call.name)
        except AdapterNotFound as error:
            self._answer(call.call_id, error)
        else:
            self._answer(call.call_id)

    def wait(self) -> None:
        """Wait briefly for an answer."""
        if not self._answers:
            wait([loading.weights for loading in self._loading.values()], PATIENCE, FIRST_COMPLETED)

    def answers(self) -> list[AdapterAnswer]:
        """Return the answers to calls that finished since the last time."""
        for call_id in [call_id for call_id, loading in self._loading.items() if loading.weights.done()]:
            loading = self._loading.pop(call_id)
            try:
                self._engine.adapters.add(loading.name, loading.source, loading.weights.result())
            except LmiError as error:
                self._answer(call_id, error)
            except Exception as error:  # libraries may raise anything for a broken file
                self._answer(call_id, InvalidAdapter(f"the adapter cannot be loaded: {type(error).__name__}: {error}"))
            else:
                self._answer(call_id)
        answers, self._answers = self._answers, []
        return answers

    def _answer(self, call_id: str, error: LmiError | None = None) -> None:
        names = [] if error is not None else self._engine.adapters.names
        self._answers.append(AdapterAnswer(call_id, names, None if error is None else failure(call_id, error)))
