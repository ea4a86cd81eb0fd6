"""Lists of a thousand models: others have their turn meanwhile, and each model costs as much as beside few."""

import asyncio
import time
from collections.abc import Sequence

import pytest

from lmi_core.calls.call import Call
from lmi_core.handler import Answer, RouteAnswer
from lmi_core.registry.registered_model import RegisteredModel
from lmi_core.registry.registration import Registration
from lmi_handlers.console import state as console
from lmi_handlers.console.handler import console_state
from lmi_handlers.management import descriptions as management_descriptions
from lmi_handlers.management import handler as management
from lmi_handlers.ollama import models as ollama
from lmi_handlers.openai import models as openai
from tests.conftest import SCRIPTED, RunningServer
from tests.handlers.management.asking import ask
from tests.module_server import module_server

pytestmark = pytest.mark.asyncio(loop_scope="module")

FEW, MANY = 100, 1000
LISTS: Sequence[tuple[str, RouteAnswer, int]] = (  # with how many models are described between two pauses, at the most
    ("/models", management.list_models, management_descriptions.AT_ONCE),
    ("/console/state", console_state, console.AT_ONCE),
    ("/v1/models", openai.list_models, openai.AT_ONCE),
    ("/api/tags", ollama.tags, ollama.AT_ONCE),
    ("/api/ps", ollama.running, ollama.AT_ONCE),
)


# A server that is given further models, each of which is the same one that is loaded.
server = module_server(SCRIPTED)


async def register(server: RunningServer, count: int) -> None:
    """Have that many models in the registry."""
    registry = server.dispatcher.registry
    (model,) = set(registry.models.values())
    names = [f"m{number}" for number in range(len(registry.names), count)]
    for name in names:
        registry._add(RegisteredModel(Registration(name, str(model.plan.directory)), model, at_startup=True))
    registry.publish(*names)
    assert len(registry.names) == count


async def turns_of_others(server: RunningServer, answer: RouteAnswer) -> int:
    """Return how often others have their turn before there is an answer, which waits for no socket."""
    call = Call({}, {}, b"", "r", query={"limit": "10000"})
    answering, turns = asyncio.create_task(answer_of(answer, call, server)), 0
    while not answering.done():
        turns += 1
        await asyncio.sleep(0)
    assert answering.result().status == 200
    return turns


async def answer_of(answer: RouteAnswer, call: Call, server: RunningServer) -> Answer:
    return await answer(call, server.dispatcher)


async def processor_time(server: RunningServer, path: str) -> float:
    """Return the least time of this thread that a request takes, as it is where nothing disturbs."""
    found = []
    for _ in range(3):
        begun = time.thread_time()
        assert (await server.get(f"{path}?limit=10000")).status == 200
        found.append(time.thread_time() - begun)
    return min(found)


async def test_lists_grow_with_the_models_and_let_others_have_their_turn(server: RunningServer) -> None:
    """One test, as what few models take is the measure of many."""
    await register(server, FEW)
    few = {path: await processor_time(server, path) for path, _, _ in LISTS}
    await register(server, MANY)
    for path, answer, at_once in LISTS:
        assert await processor_time(server, path) < few[path] * MANY / FEW * 3, path  # by squares, it would be 10
        assert at_once <= MANY, path
        assert await turns_of_others(server, answer) >= MANY // at_once, path
    page = (await ask(server, "GET", "/models", limit=MANY)).json()
    assert len(page["models"]) == MANY
    assert "nextPageToken" not in page
