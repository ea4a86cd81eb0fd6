"""The handler of the console's data."""

import time
from importlib.metadata import version
from typing import ClassVar
from weakref import WeakKeyDictionary

from lmi_core.calls.access import Access
from lmi_core.calls.answer import json_answer
from lmi_core.handler import Answer, AnswerForm, Call, Route, RouteAnswer
from lmi_core.served_model import ServedModels
from lmi_handlers.base.plain_handler import PlainHandler, registry_of
from lmi_handlers.console.answers import ConsoleErrors, ConsoleState
from lmi_handlers.console.state import MemoryReader, describe_errors, describe_models, registered_models
from lmi_handlers.process.front import UNCHANGEABLE, this_front

VERSION = version("lmi-handlers")
STARTED = time.time()

_readers: WeakKeyDictionary[ServedModels, MemoryReader] = WeakKeyDictionary()  # one per server


async def console_state(call: Call, served: ServedModels) -> Answer:
    """Answer with the current state for the console, without errors. The call takes no place in a queue."""
    registered = registered_models(registry_of(served))
    process_ids = {each.key: found for each in registered if (found := each.process_ids)}
    memory = await _readers.setdefault(served, MemoryReader()).read(process_ids)
    state = ConsoleState(
        time=time.time(),
        clock=time.monotonic(),
        startedAt=STARTED,
        version=VERSION,
        unchangeable=None if this_front() is None else UNCHANGEABLE,
        latestError=served.metrics.errors.latest,
        memory=memory.shown,
        models=await describe_models(registered, memory.by_model),
    )
    return json_answer(state)


async def console_errors(call: Call, served: ServedModels) -> Answer:
    """Answer with the latest errors, which contain no input of clients except names."""
    return json_answer(ConsoleErrors(errors=describe_errors(iter(served.metrics.errors))))


def _route(answer: RouteAnswer, name: str, summary: str, form: type) -> Route:
    access, answers = Access.OPERATORS, (AnswerForm(form),)
    path = f"/console/{name}"
    return Route(path, "GET", answer, summary, access=access, is_polled=True, compresses=True, answers=answers)


class ConsoleHandler(PlainHandler):
    """The console's data, for operators."""

    name: ClassVar[str] = "console"
    summary: ClassVar[str] = "The console"
    routes: ClassVar[tuple[Route, ...]] = (
        _route(console_state, "state", "The models, their queues, tokens and memory, as they are now", ConsoleState),
        _route(console_errors, "errors", "The latest errors of requests", ConsoleErrors),
    )
