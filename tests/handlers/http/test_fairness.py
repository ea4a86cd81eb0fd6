"""Requests of several clients that wait: one client's many do not starve another's one."""

import asyncio

import pytest

from lmi_handlers.access.api_keys import ApiKeys
from lmi_handlers.access.options import AccessOptions
from lmi_handlers.testing import running_server
from lmi_plugins.backends.scripted import Script
from tests.conftest import SCRIPTED, ModelDirectory, RunningServer
from tests.handlers.lmi.test_dynamic import DISABLE, AutoPlugin

SECONDS = 100
GIVEN = 1 + 4  # the engine's batch, and the sequences that wait in the engine itself


async def send(server: RunningServer, key: str, prompt: str) -> None:
    body = {"prompt": prompt, "max_tokens": 2}
    answer = await server.post("/v1/completions", body, headers={"Authorization": f"Bearer sk-{key}"})
    assert answer.status == 200


async def test_one_of_many_waits_for_no_more_than_its_turn(model_dir: ModelDirectory) -> None:
    directory = model_dir({"serving.properties": f"{SCRIPTED}option.max_rolling_batch_size=1\n"})
    access = AccessOptions(api_keys=ApiKeys(["ann sk-ann", "bob sk-bob"]))
    async with running_server(directory, access=access) as server:
        held = [Script("", hold=True) for _ in range(GIVEN)]
        server.scripted.enqueue(*held)
        streams = [asyncio.create_task(send(server, "ann", "held")) for _ in range(GIVEN)]
        for script in held:
            await asyncio.wait_for(script.started.wait(), SECONDS)
        many = [asyncio.create_task(send(server, "ann", f"ann {i}")) for i in range(40)]
        while server.model.admission.taken < GIVEN + len(many):
            await asyncio.sleep(0.01)
        one = asyncio.create_task(send(server, "bob", "bob"))
        while server.model.admission.taken < GIVEN + len(many) + 1:
            await asyncio.sleep(0.01)
        assert len(server.scripted.history) == GIVEN
        streams[0].cancel()  # its client leaves
        await asyncio.wait_for(asyncio.gather(one, *many), SECONDS)
        order = [request.prompt for request in server.scripted.history[GIVEN:]]
        assert order.index("bob") <= 2
        for stream in streams:
            stream.cancel()
        await asyncio.gather(*streams, return_exceptions=True)


async def test_one_waits_for_no_request_with_many_prompts(model_dir: ModelDirectory) -> None:
    directory = model_dir({"serving.properties": f"{SCRIPTED}option.max_rolling_batch_size=1\n"})
    access = AccessOptions(api_keys=ApiKeys(["ann sk-ann", "bob sk-bob"]))
    async with running_server(directory, access=access) as server, asyncio.timeout(SECONDS):
        gates = [asyncio.Event() for _ in range(GIVEN)]
        server.scripted.enqueue(*[Script("one two", prefilled=gate) for gate in gates])
        body = {"prompt": [f"ann {i}" for i in range(40)], "max_tokens": 2}
        many = asyncio.create_task(server.post("/v1/completions", body, headers={"Authorization": "Bearer sk-ann"}))
        while len(server.scripted.history) < GIVEN:
            await asyncio.sleep(0.01)
        one = asyncio.create_task(send(server, "bob", "bob"))
        while server.model.turns.waiting < 40 - GIVEN + 1:
            await asyncio.sleep(0.01)
        gates[0].set()
        await one
        assert not many.done()
        for gate in gates:
            gate.set()
        answer = await many
        assert [choice["index"] for choice in answer.json()["choices"]] == [*range(40)]
        assert [request.prompt for request in server.scripted.history].index("bob") <= GIVEN + 1


HANDLE = """\
import time
from pathlib import Path
from djl_python import Input, Output

folder = Path(__file__).parent
order = []

def handle(inputs):
    if inputs.is_empty():
        return None
    order.extend(each.get_as_json()["name"] for each in inputs.get_batches())
    (folder / "called").touch()
    while not (folder / "go").exists():
        time.sleep(0.01)
    output = Output()
    for _ in inputs.get_batches():
        output.add_as_json(order)
    return output
"""


async def named(server: RunningServer, key: str, name: str) -> list[str]:
    answer = await server.post("/invocations", {"name": name}, headers={"Authorization": f"Bearer sk-{key}"})
    assert answer.status == 200, answer.body
    return list(answer.json())


@pytest.mark.parametrize("batch_size", [1, 3])
async def test_calls_of_a_model_function_take_turns(model_dir: ModelDirectory, batch_size: int) -> None:
    properties = f"batch_size={batch_size}\nmax_batch_delay=1\n"
    directory = model_dir({"serving.properties": properties, "model.py": HANDLE})
    access = AccessOptions(api_keys=ApiKeys(["ann sk-ann", "bob sk-bob"]))
    async with running_server(directory, access=access) as server, asyncio.timeout(SECONDS):
        calls = [asyncio.create_task(named(server, "ann", "first"))]
        while not (directory / "called").exists():
            await asyncio.sleep(0.01)
        calls += [asyncio.create_task(named(server, "ann", f"ann {i}")) for i in range(30)]
        leaving = asyncio.create_task(named(server, "bob", "left"))
        while server.model.admission.taken < 32:
            await asyncio.sleep(0.01)
        calls.append(asyncio.create_task(named(server, "bob", "bob")))
        while server.model.admission.taken < 33:
            await asyncio.sleep(0.01)
        leaving.cancel()
        while server.model.admission.taken > 32:
            await asyncio.sleep(0.01)
        (directory / "go").touch()
        order = max(await asyncio.gather(*calls), key=len)
        assert order.index("bob") <= 2
        assert "left" not in order
        assert [name for name in order if name != "bob"] == ["first", *(f"ann {i}" for i in range(30))]


async def test_members_of_dynamic_batches_take_turns(model_dir: ModelDirectory) -> None:
    directory = model_dir({"serving.properties": f"{DISABLE}batch_size=2\nmax_batch_delay=1\n"})
    access = AccessOptions(api_keys=ApiKeys(["ann sk-ann", "bob sk-bob"]))
    async with running_server(directory, [AutoPlugin()], access=access) as server, asyncio.timeout(SECONDS):
        server.scripted.enqueue(script := Script("", hold=True))
        held = asyncio.create_task(send(server, "ann", "held"))
        await script.started.wait()
        calls = [asyncio.create_task(send(server, "ann", f"ann {i}")) for i in range(20)]
        while server.model.admission.taken < 21:
            await asyncio.sleep(0.01)
        calls.append(asyncio.create_task(send(server, "bob", "bob")))
        while server.model.admission.taken < 22:
            await asyncio.sleep(0.01)
        assert len(server.scripted.history) == 1
        held.cancel()
        await asyncio.gather(*calls)
        order = [request.prompt for request in server.scripted.history[1:]]
        assert order.index("bob") <= 1


async def test_a_call_that_waits_for_its_turn_can_be_aborted(model_dir: ModelDirectory) -> None:
    directory = model_dir({"serving.properties": f"{SCRIPTED}option.max_rolling_batch_size=1\n"})
    async with running_server(directory) as server:
        held = [Script("", hold=True) for _ in range(GIVEN)]
        server.scripted.enqueue(*held)
        body = {"prompt": "held"}
        tasks = [asyncio.create_task(server.post("/v1/completions", body)) for _ in range(GIVEN)]
        for script in held:
            await asyncio.wait_for(script.started.wait(), SECONDS)
        waiting = asyncio.create_task(server.post("/v1/completions", body, headers={"x-request-id": "waits"}))
        while server.model.admission.taken < GIVEN + 1:
            await asyncio.sleep(0.01)
        for _ in range(100):
            await server.post("/v1/abort_request", {"request_id": "waits"})
            if waiting.done():
                break
            await asyncio.sleep(0.01)
        answer = await asyncio.wait_for(waiting, SECONDS)
        assert (answer.status, len(server.scripted.history)) == (200, GIVEN)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
