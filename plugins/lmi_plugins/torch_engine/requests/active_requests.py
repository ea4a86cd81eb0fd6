"""The unfinished requests of an engine."""

from collections.abc import Iterable, Sequence

from lmi_core.errors import GenerationFailed, InvalidParameter, LmiError
from lmi_plugins.torch_engine.messages.requests import Guide
from lmi_plugins.torch_engine.messages.results import Result, Results
from lmi_plugins.torch_engine.scheduling.guide_queue import GuideQueue
from lmi_plugins.torch_engine.scheduling.scheduler import Scheduler
from lmi_plugins.torch_engine.sequences.sequence import SequenceGroup


class ActiveRequests:
    """The unfinished sequence groups of each request, from its admission to its last group's end."""

    def __init__(self, scheduler: Scheduler, guides: GuideQueue) -> None:
        self._scheduler = scheduler
        self._guides = guides
        self.groups: dict[str, list[SequenceGroup]] = {}  # by request

    def __contains__(self, request_id: str) -> bool:
        return request_id in self.groups

    def check_unused(self, request_id: str) -> None:
        """Raise InvalidParameter for the id of an unfinished request."""
        if request_id in self.groups:
            raise InvalidParameter(f"request id {request_id!r} is already in use")

    def add(self, groups: list[SequenceGroup], guide: Guide | None) -> None:
        """Queue all groups of one request; groups with a guide wait for it first."""
        self.groups[groups[0].request_id] = groups
        if guide is not None:
            self._guides.add(guide, tuple(groups))
        else:
            self._schedule(groups)

    def admit_guided(self) -> Results:
        """Schedule the groups whose guides are compiled; return the ends of requests whose guides are wrong."""
        if not self._guides.waiting:
            return []
        if not self._scheduler.has_work:
            self._guides.wait()
        ready, refused = self._guides.take()
        self._schedule(ready)
        for request_id, _ in refused:
            del self.groups[request_id]
        return list(refused)

    def end(self, group: SequenceGroup) -> None:
        """Drop a finished group; others of its request continue."""
        self._scheduler.remove(group)
        others = self.groups[group.request_id]
        others.remove(group)
        if not others:
            del self.groups[group.request_id]

    def abort(self, request_id: str) -> None:
        """Drop a request and free its memory; do nothing if it is unknown or finished."""
        groups = self.groups.pop(request_id, [])
        if not self._guides.discard(request_id):
            for group in groups:
                self._scheduler.remove(group)

    def fail(self, request_id: str, reason: LmiError | str) -> tuple[str, Result]:
        """Drop a request, and return its end."""
        self.abort(request_id)
        if isinstance(reason, LmiError):
            return request_id, reason
        return request_id, GenerationFailed(f"The generation failed: {reason}")

    def fail_all(self, request_ids: Iterable[str], reason: LmiError | str) -> Results:
        """Drop the requests that are not finished yet, and return the end of each, once."""
        return [self.fail(request_id, reason) for request_id in dict.fromkeys(request_ids) if request_id in self]

    def _schedule(self, groups: Sequence[SequenceGroup]) -> None:
        for group in groups:
            self._scheduler.add(group)
