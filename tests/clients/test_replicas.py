"""Three engines of one model behind all dialects: killed, removed, added and replaced under load, unseen by clients."""

import asyncio
import os
import shutil
import signal
from pathlib import Path

from tests.clients.test_every_dialect import DIALECTS, HELLO, QUESTIONS
from tests.clients.test_resumption import ask, engine_of
from tests.conftest import RunningServer, Serve
from tests.handlers.management.asking import ask as manage
from tests.handlers.management.asking import describe

COUNT = 24  # requests at once
PROPERTIES = "option.rolling_batch=torch\noption.max_rolling_batch_size=24\nminWorkers=3\nmaxWorkers=3\n"


async def workers(server: RunningServer) -> list[int]:
    (group,) = (await describe(server, "hello"))["workerGroups"]
    assert group["device"] == {"deviceType": "cpu", "deviceId": -1}
    return [each["processId"] for each in group["workers"]]


async def test_no_client_sees_it(serve: Serve, tmp_path: Path) -> None:
    directory = tmp_path / "hello"
    shutil.copytree(HELLO, directory)
    (directory / "serving.properties").write_text(PROPERTIES)
    server = await serve(directory)
    replicas = engine_of(server).replicas
    asked = [(name, question) for question in QUESTIONS for name in DIALECTS][:COUNT]
    expected = await asyncio.gather(*(ask(server, *each) for each in asked))

    async def all_are_at_work() -> None:
        while not all(each.isolation.inside for each in replicas.members):
            await asyncio.sleep(0.005)

    first = await workers(server)
    assert len(first) == 3
    assert 'lmi_workers{model="hello"} 3' in (await server.get("/metrics")).body.decode()
    answering = [asyncio.create_task(ask(server, *each)) for each in asked]
    await all_are_at_work()
    for each in first:
        os.kill(each, signal.SIGSTOP)  # they are looked at meanwhile
    (group,) = (await describe(server, "hello"))["workerGroups"]
    inside = {each["id"]: each["sequences"] for each in group["workers"]}
    assert [*inside] == [1, 2, 3]
    assert all(0 < count < COUNT for count in inside.values())
    assert 'lmi_worker_sequences{model="hello",worker="3"}' in (await server.get("/metrics")).body.decode()
    os.kill(first[1], signal.SIGKILL)
    for each in (first[0], first[2]):
        os.kill(each, signal.SIGCONT)
    assert (await server.get("/ping")).status == 200
    assert await ask(server, *asked[0]) == expected[0]  # the others take new requests at once
    assert await asyncio.gather(*answering) == expected

    answering = [asyncio.create_task(ask(server, *each)) for each in asked]
    changed = await manage(server, "PUT", "/models/hello?min_worker=1&max_worker=1")
    assert (changed.status, len(await workers(server))) == (200, 1)
    assert await asyncio.gather(*answering) == expected

    changed = await manage(server, "PUT", "/models/hello?min_worker=2")
    assert (changed.status, len(await workers(server))) == (200, 2)
    answering = [asyncio.create_task(ask(server, *each)) for each in asked]
    await all_are_at_work()
    assert await asyncio.gather(*answering) == expected

    server.dispatcher.registry.memory_planner.free = lambda _: 0  # no room for two versions
    answering = [asyncio.create_task(ask(server, *each)) for each in asked]
    new = f"/models?url={directory}&model_version=2&min_worker=2&max_worker=2&replace=true"
    assert (await manage(server, "POST", new)).status == 200
    assert (server.dispatcher.models["hello"].version, len(await workers(server))) == ("2", 2)
    answering += [asyncio.create_task(ask(server, *each)) for each in asked]
    assert await asyncio.gather(*answering) == expected * 2
