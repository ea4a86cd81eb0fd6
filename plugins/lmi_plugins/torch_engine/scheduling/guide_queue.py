"""The sequences whose guides are being compiled."""

from collections.abc import Sequence as Items
from concurrent.futures import FIRST_COMPLETED, Future, wait
from typing import TYPE_CHECKING, NamedTuple

from lmi_core.errors import GenerationFailed, LmiError
from lmi_plugins.torch_engine.guides.compiling import GuideCompiler
from lmi_plugins.torch_engine.sequence import Sequence
from lmi_plugins.torch_engine.worker.messages import Guide

if TYPE_CHECKING:
    from xgrammar import CompiledGrammar

PATIENCE = 0.01  # seconds of waiting after which the engine hears whether there are other requests


class Waiting(NamedTuple):
    future: "Future[CompiledGrammar]"
    sequences: Items[Sequence]


class GuideQueue:
    """They join the batch when that is done; one whose guide is wrong never does."""

    def __init__(self, compiler: GuideCompiler) -> None:
        self._compiler = compiler
        self._waiting: dict[str, Waiting] = {}  # by request

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, guide: Guide, sequences: Items[Sequence]) -> None:
        """All of one request."""
        for sequence in sequences:
            sequence.end_ids = self._compiler.end_ids
        self._waiting[sequences[0].request_id] = Waiting(self._compiler.submit(guide), sequences)

    def discard(self, request_id: str) -> bool:
        """Whether the request was here."""
        waiting = self._waiting.pop(request_id, None)
        if waiting is not None:
            waiting.future.cancel()
        return waiting is not None

    def wait(self) -> None:
        """Until there is something to take, but not for long."""
        wait([waiting.future for waiting in self._waiting.values()], PATIENCE, FIRST_COMPLETED)

    def take(self) -> tuple[list[Sequence], list[tuple[str, LmiError]]]:
        """The sequences that can run now, and the requests that never will."""
        ready: list[Sequence] = []
        refused: list[tuple[str, LmiError]] = []
        for request_id in [name for name, waiting in self._waiting.items() if waiting.future.done()]:
            waiting = self._waiting.pop(request_id)
            try:
                for sequence in waiting.sequences:
                    grammar = waiting.future.result()
                    sequence.state.matcher = self._compiler.matcher(grammar, sequence.prompt_length)
            except LmiError as error:
                refused.append((request_id, error))
            except Exception as error:
                refused.append((request_id, GenerationFailed(f"The guide could not be compiled: {error}")))
            else:
                ready += waiting.sequences
        return ready, refused
