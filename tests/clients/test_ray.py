"""Engines on the nodes of a Ray cluster: actors and a node are killed under load, which no client sees."""

import asyncio
import importlib
import itertools
import os
import shutil
import signal
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import aiohttp
import psutil
import pytest
from transformers import AutoModelForCausalLM

from lmi_core.workers import shared_ray_actor
from lmi_core.workers.ray_actor import connect
from tests.clients.test_every_dialect import DIALECTS, HELLO, QUESTIONS
from tests.clients.test_resumption import ask, engine_of
from tests.conftest import Answer, RunningServer, Serve
from tests.core.remote.nodes.hiding import environment_hiding
from tests.handlers.management.asking import ask as manage
from tests.handlers.management.asking import describe
from tests.lmi_process import lmi_serve
from tests.plugins.torch_engine.adapters.lora_adapters import save_adapter
from tests.plugins.vllm_server import ENVIRONMENT, ONE_PROCESS, PROPERTIES
from tests.ports import free_port

COUNT = 18  # requests at once
NODES = 3
CACHE = "Cache of "  # begins a line of an engine's log
UNUSED_SECONDS = (
    5  # instead of a minute, after which a shared engine no longer waits for a server in the dead one's place
)
SHORTER_WAIT = f"""
import importlib.util, sys

class Changed:
    def find_spec(self, name, *_):
        if name != "{shared_ray_actor.__name__}":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        run = spec.loader.exec_module

        def run_and_change(module):
            run(module)
            assert module.UNUSED_SECONDS > {UNUSED_SECONDS}
            module.UNUSED_SECONDS = {UNUSED_SECONDS}

        spec.loader.exec_module = run_and_change
        return spec

sys.meta_path.insert(0, Changed())
"""

pytestmark = pytest.mark.timeout(300)  # engines, and a cluster of many processes, start several times


class Nodes:
    """A cluster of this machine, each of whose nodes has room for one engine, a cache, and none of the models."""

    def __init__(self, folder: Path) -> None:
        self.models = folder / "models"
        self._folder = folder
        self._count = itertools.count()
        self.cluster: Any = importlib.import_module("ray.cluster_utils").Cluster()
        self.client_port = free_port()
        with warnings.catch_warnings(action="ignore", category=ResourceWarning):  # its log stays open
            self.add(ray_client_server_port=self.client_port)
        for _ in range(NODES - 1):
            self.add()

    def add(self, **head: int) -> None:
        folder = self._folder / str(next(self._count))
        environment = environment_hiding(self.models, folder, SHORTER_WAIT)
        self.cluster.add_node(num_cpus=1, include_dashboard=False, env_vars=environment, **head)

    def model(self, name: str, properties: str) -> Path:
        """Write a model directory that the nodes do not see."""
        directory = self.models / name
        shutil.copytree(HELLO, directory)
        (directory / "serving.properties").write_text(properties)
        return directory

    def copies(self, name: str) -> list[Path]:
        """Return the copies of the folder of a name in the caches of the nodes."""
        return [*self._folder.glob(f"*/cache/servers/*/*/{name}")]


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nodes]:
    with tempfile.TemporaryDirectory(prefix="ray", dir="/tmp") as short, pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_TMPDIR", short)  # where `auto` finds this cluster, and no test beside this one another
        patch.setenv("RAY_AUTH_MODE", "disabled")  # as such a cluster has no tokens, for which `auto` would look
        nodes = Nodes(tmp_path_factory.mktemp("cluster"))
        try:
            yield nodes
        finally:
            importlib.import_module("ray").shutdown()
            nodes.cluster.shutdown()


async def workers(server: RunningServer) -> list[dict[str, Any]]:
    (group,) = (await describe(server, "hello"))["workerGroups"]
    return list(group["workers"])


async def test_servers_find_the_cluster(nodes: Nodes, tmp_path: Path) -> None:
    """One in the driver of a Ray job, one with the head's address, and a client, which is on no node.

    The first has two models, which connect at the same time.
    """
    directory, other = (nodes.model(name, "option.rolling_batch=torch\n") for name in ("hello_outside", "hello_too"))
    elsewhere = {"RAY_TMPDIR": str(tmp_path)}  # where `auto` finds no cluster
    starts = (
        ("auto", elsewhere | {"RAY_ADDRESS": nodes.cluster.address}),
        (nodes.cluster.address, elsewhere),
        (f"ray://127.0.0.1:{nodes.client_port}", elsewhere),
    )
    for address, environment in starts:
        models = (directory, other) if address == "auto" else (directory,)
        async with lmi_serve(*models, "--port", 0, "--ray", address, environment=environment, forked=False) as server:
            url = await server.ready()
            sent = [line for line in server.log if CACHE in line] or [await server.line_with(CACHE)]  # by the worker
            assert "model hello_" in sent[0]
            async with aiohttp.ClientSession(url) as client:
                async with client.post("/predictions/hello_outside", json={"inputs": "Who are you?"}) as answer:
                    assert answer.status == 200, await answer.read()
                async with client.get("/models/hello_outside") as description:
                    (found,) = (await description.json())[0]["models"]
                    assert found["workerGroups"][0]["workers"][0]["node"]


async def answer(client: aiohttp.ClientSession, question: str) -> str:
    payload = {"inputs": question, "parameters": {"max_new_tokens": 30}}
    async with client.post("/invocations", json=payload) as response:
        assert response.status == 200, await response.read()
        return await response.text()


async def engines(client: aiohttp.ClientSession) -> set[int]:
    async with client.get("/models/hello_shared") as description:
        (found,) = (await description.json())[0]["models"]
        return {each["processId"] for each in found["workerGroups"][0]["workers"]}


def asking(client: aiohttp.ClientSession) -> list[asyncio.Task[str]]:
    questions = ["Who are you?", "Tell me a story.", *QUESTIONS] * 2
    return [asyncio.create_task(answer(client, question)) for question in questions]


async def test_servers_share_engines(nodes: Nodes, tmp_path: Path) -> None:
    """One is a single process, and one has two front ends; the first is killed, and then an engine, under load."""
    properties = "option.rolling_batch=torch\nray_address=auto\nray_shared=true\nminWorkers=2\nmaxWorkers=2\n"
    directory = nodes.model("hello_shared", properties)
    serving = (directory, "--port", 0)
    async with lmi_serve(*serving, "--servers", 2, forked=False) as front_ends:
        async with lmi_serve(*serving, forked=False) as server:
            urls = await asyncio.gather(front_ends.ready(), server.ready())
            async with aiohttp.ClientSession(urls[0]) as first, aiohttp.ClientSession(urls[1]) as second:
                process_ids = await engines(first)
                assert await engines(second) == process_ids
                expected = await asyncio.gather(*asking(first))
                assert await asyncio.gather(*asking(second)) == expected
                save_adapter(tmp_path, AutoModelForCausalLM.from_pretrained(HELLO), seed=1)
                adapter = {"name": "late", "src": str(tmp_path)}
                async with second.post("/models/hello_shared/adapters", params=adapter) as refused:
                    assert refused.status == 403, await refused.read()
                others, own = asking(first), asking(second)
                await asyncio.wait(own, return_when=asyncio.FIRST_COMPLETED)
                server.process.kill()
                assert await asyncio.gather(*others) == expected
                await asyncio.gather(*own, return_exceptions=True)
                assert await engines(first) == process_ids
        async with lmi_serve(*serving, forked=False) as server:
            url = await server.ready()
            async with aiohttp.ClientSession(urls[0]) as first, aiohttp.ClientSession(url) as second:
                assert await engines(second) == process_ids
                answers = [*asking(first), *asking(second)]
                await asyncio.wait(answers, return_when=asyncio.FIRST_COMPLETED)
                os.kill(killed := process_ids.pop(), signal.SIGKILL)
                assert await asyncio.gather(*answers) == expected * 2
                while len(process_ids := await engines(second)) < 2:
                    await asyncio.sleep(0.1)
                assert killed not in process_ids
            for each in (server, front_ends):
                each.process.terminate()
                assert await each.process.wait() == 0
    for process_id in process_ids:
        with suppress(psutil.NoSuchProcess):
            await asyncio.to_thread(
                psutil.Process(process_id).wait, UNUSED_SECONDS + 2 * shared_ray_actor.LEASE_SECONDS
            )


async def test_no_client_sees_it(serve: Serve, nodes: Nodes) -> None:
    directory = nodes.model("hello", f"option.rolling_batch=torch\nray_address=auto\nminWorkers={NODES}\n")
    server = await serve(directory)
    replicas = engine_of(server).replicas
    asked = [(name, question) for question in QUESTIONS for name in DIALECTS][:COUNT]
    expected = await asyncio.gather(*(ask(server, *each) for each in asked))
    assert len(nodes.copies("hello")) == NODES
    await an_adapter_comes(server, nodes, directory / "adapters" / "late")

    async def at_work() -> list[asyncio.Task[str]]:
        asking = [asyncio.create_task(ask(server, *each)) for each in asked]
        while not all(each.isolation.inside for each in replicas.members if each.is_available):
            await asyncio.sleep(0.005)
        return asking

    found = await workers(server)
    assert len({each["processId"] for each in found}) == NODES
    assert all(each["node"] for each in found)
    answering = await at_work()
    os.kill(found[0]["processId"], signal.SIGKILL)
    assert await asyncio.gather(*answering) == expected

    for each in replicas.members:
        await each.available()
    assert found[0]["processId"] not in [each["processId"] for each in await workers(server)]
    assert len(nodes.copies("hello")) == NODES
    removed = next(iter(nodes.cluster.worker_nodes))
    nodes.add()
    answering = await at_work()
    await asyncio.to_thread(nodes.cluster.remove_node, removed)
    assert await asyncio.gather(*answering) == expected
    for each in replicas.members:
        await each.available()
    assert len(await workers(server)) == NODES
    assert [len(nodes.copies(name)) for name in ("hello", "late")] == [NODES + 1, NODES + 1]

    answering = await at_work()  # no node has room for an engine of the next version beside those of this one
    replacing = f"/models?url={directory}&model_version=2&min_worker={NODES}&max_worker={NODES}&replace=true"
    assert (await manage(server, "POST", replacing)).status == 200
    assert await asyncio.gather(*answering) == expected
    assert server.dispatcher.models["hello"].version == "2"
    assert all(each["node"] for each in await workers(server))
    assert await asyncio.gather(*(ask(server, *each) for each in asked)) == expected


@pytest.mark.vllm
@pytest.mark.timeout(600)
async def test_engines_of_vllm(serve: Serve, nodes: Nodes, monkeypatch: pytest.MonkeyPatch) -> None:
    """An actor is killed under load, and, while it is replaced, the core of the other one."""
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    options = f"{PROPERTIES}{ONE_PROCESS}option.enable_lora=true\nray_address={nodes.cluster.address}\nminWorkers=2\n"
    directory = nodes.model("vllm/hello", options)
    server = await serve(directory)
    replicas = server.model.backend.replicas
    assert replicas is not None
    asked = [(name, question) for question in QUESTIONS for name in DIALECTS][:COUNT]
    expected = await asyncio.gather(*(ask(server, *each) for each in asked))
    await an_adapter_comes(server, nodes, directory / "adapters" / "of_vllm", 2)
    actors = [each["processId"] for each in await workers(server)]
    assert len({*actors, os.getpid()}) == 3
    (core,) = (each for each in psutil.Process(actors[1]).children() if "EngineCore" in each.name())
    for killed in (psutil.Process(actors[0]), core):
        answering = [asyncio.create_task(ask(server, *each)) for each in asked]
        while not all(each.isolation.inside for each in replicas.members if each.is_available):
            await asyncio.sleep(0.005)
        killed.kill()
        assert await asyncio.gather(*answering) == expected
    for each in replicas.members:
        await each.available()
    assert not {*actors} & {each["processId"] for each in await workers(server)}
    await an_adapter_answers(server, "of_vllm")


async def test_a_signal_to_end_does_not_abort_the_server(nodes: Nodes) -> None:
    """Ray's own handler would, after 3 seconds."""
    ended = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, ended.set)
    try:
        await connect(nodes.cluster.address)
        os.kill(os.getpid(), signal.SIGTERM)
        await ended.wait()
        assert signal.getitimer(signal.ITIMER_REAL)[0] > 3  # the test's own limit, not Ray's
    finally:
        asyncio.get_running_loop().remove_signal_handler(signal.SIGTERM)


async def an_adapter_comes(server: RunningServer, nodes: Nodes, folder: Path, engines: int = NODES) -> None:
    """Load an adapter that has come since the engines were started; its files are on the server's host alone."""
    model = AutoModelForCausalLM.from_pretrained(HELLO)
    save_adapter(folder, model, seed=1)
    loaded = await manage(server, "POST", f"/models/{server.model.name}/adapters?name={folder.name}&src={folder}")
    assert loaded.status == 200, loaded.body
    assert len(nodes.copies(folder.name)) == engines
    await an_adapter_answers(server, folder.name)


async def an_adapter_answers(server: RunningServer, name: str) -> None:
    answer = await server.post("/invocations", {"inputs": "Who are you?", "adapters": name})
    assert answer.status == 200, answer.body


async def test_what_runs_goes_on_without_the_head(serve: Serve, nodes: Nodes) -> None:
    """Run last: the cluster has no head any more."""
    properties = f"option.rolling_batch=trtllm\nray_address={nodes.cluster.address}\nminWorkers={NODES}\n"
    server = await serve(nodes.model("hello_again", properties))
    asked = ["Who are you?", "Tell me a story."] * NODES

    def asking() -> list[asyncio.Task[Answer]]:
        payloads = [{"inputs": each, "parameters": {"max_new_tokens": 30}} for each in asked]
        return [asyncio.create_task(server.post("/invocations", each)) for each in payloads]

    expected = [each.body for each in await asyncio.gather(*asking())]
    answering = asking()
    await asyncio.to_thread(nodes.cluster.head_node.kill_gcs_server)
    assert [each.body for each in await asyncio.gather(*answering)] == expected
    assert [each.body for each in await asyncio.gather(*asking())] == expected
