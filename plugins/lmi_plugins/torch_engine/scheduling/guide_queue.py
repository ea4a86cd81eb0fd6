"""The sequence groups that wait for compiled guides."""

from collections.abc import Sequence as Items
from concurrent.futures import FIRST_COMPLETED, wait
from typing import NamedTuple

from lmi_core.errors import GenerationFailed, LmiError
from lmi_plugins.torch_engine.guides.compilation import Compilation
from lmi_plugins.torch_engine.guides.compiling import GuideCompiler
from lmi_plugins.torch_engine.messages.requests import Guide
from lmi_plugins.torch_engine.sequences.sequence import SequenceGroup

PATIENCE = 0.01  # seconds to wait before the engine checks for other requests


class Waiting(NamedTuple):
    """A request's groups, and the guide for which they wait."""

    compilation: Compilation
    groups: Items[SequenceGroup]


class GuideQueue:
    """Sequence groups that join the batch when their guide is compiled, or fail if it is invalid."""

    def __init__(self, compiler: GuideCompiler) -> None:
        self._compiler = compiler
        self.waiting: dict[str, Waiting] = {}  # by request

    def add(self, guide: Guide, groups: Items[SequenceGroup]) -> None:
        """Start compiling the guide of all groups of one request."""
        for group in groups:
            for sequence in group.sequences:
                sequence.eos_token_ids = self._compiler.eos_token_ids
        self.waiting[groups[0].request_id] = Waiting(self._compiler.submit(guide), groups)

    def discard(self, request_id: str) -> bool:
        """Drop a request; return whether it was here."""
        waiting = self.waiting.pop(request_id, None)
        if waiting is not None:
            self._compiler.compilations.leave(waiting.compilation)
        return waiting is not None

    def wait(self) -> None:
        """Wait briefly for a compiled guide."""
        wait([waiting.compilation.future for waiting in self.waiting.values()], PATIENCE, FIRST_COMPLETED)

    def take(self) -> tuple[list[SequenceGroup], list[tuple[str, LmiError]]]:
        """Return the groups that can run now, and the requests that have failed."""
        self._compiler.compilations.make_room()
        ready: list[SequenceGroup] = []
        refused: list[tuple[str, LmiError]] = []
        for request_id in [name for name, waiting in self.waiting.items() if waiting.compilation.future.done()]:
            waiting = self.waiting.pop(request_id)
            try:
                for group in waiting.groups:
                    for sequence in group.sequences:
                        sequence.state.matcher = self._compiler.matcher(waiting.compilation, sequence.prompt_length)
            except LmiError as error:
                refused.append((request_id, error))
            except Exception as error:
                refused.append((request_id, GenerationFailed(f"The guide could not be compiled: {error}")))
            else:
                ready += waiting.groups
        return ready, refused
