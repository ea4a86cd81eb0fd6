"""Changes of adapters: they are read in a thread, so that running requests do not wait for it."""

from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from pathlib import Path
from typing import NamedTuple

from lmi_core.errors import InvalidAdapter, LmiError
from lmi_plugins.torch_engine.adapters.store import AdapterStore, Source
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

    def __init__(self, engine: Engine | None) -> None:
        """Create a loader; without an engine, the model generates no text and has no adapters."""
        self._engine = engine
        self._thread = ThreadPoolExecutor(1, "adapters")
        self._loading: dict[str, Loading] = {}  # by call
        self._answers: list[AdapterAnswer] = []

    @property
    def has_work(self) -> bool:
        return bool(self._loading or self._answers)

    @property
    def _adapters(self) -> AdapterStore:
        if self._engine is None:
            raise InvalidAdapter("the model makes embeddings without adapters")
        return self._engine.adapters

    def begin(self, call: LoadAdapter | PinAdapter | UnloadAdapter) -> None:
        """Start reading the adapter of a call; pin, unpin or unload one immediately."""
        try:
            match call:
                case LoadAdapter(call_id, name, given):
                    source = Path(given) if isinstance(given, str) else given
                    weights = self._thread.submit(self._adapters.read, source)
                    self._loading[call_id] = Loading(name, source, weights)
                    return
                case PinAdapter(_, name, pinned):
                    self._adapters.pin(name, pinned)
                case UnloadAdapter(_, name):
                    self._adapters.remove(name)
        except Exception as error:  # the device's libraries may raise anything
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
                self._adapters.add(loading.name, loading.source, loading.weights.result())
            except Exception as error:  # libraries may raise anything for a broken file
                self._answer(call_id, error)
            else:
                self._answer(call_id)
        answers, self._answers = self._answers, []
        return answers

    def _answer(self, call_id: str, error: Exception | None = None) -> None:
        if error is None:
            self._answers.append(AdapterAnswer(call_id, self._adapters.names, None))
            return
        if not isinstance(error, LmiError):
            error = InvalidAdapter(f"the adapter cannot be used: {type(error).__name__}: {error}")
        self._answers.append(AdapterAnswer(call_id, [], failure(call_id, error)))
