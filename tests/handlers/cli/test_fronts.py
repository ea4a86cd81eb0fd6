"""`lmi serve --servers`: several processes on a port, in front of one engine."""

import asyncio
import json
import os
import signal
import tempfile
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple

import aiohttp
import psutil
import pytest
import pytest_asyncio

from tests.conftest import SCRIPTED, ModelDirectory
from tests.lmi_process import LmiProcess, lmi_serve

pytestmark = pytest.mark.asyncio(loop_scope="module")  # as the servers that tests share

HELLO = Path(__file__).parents[3] / "examples" / "hello"
STREAMS = 16  # of which the kernel gives all to the same one of two front ends once in 2 ** 15 times
TOKENS = 200
SECONDS = 60
RESTARTS = 'lmi_worker_restarts_total{model="hello"}'


class Served(NamedTuple):
    """A server with two front ends."""

    server: LmiProcess
    url: str

    @property
    def fronts(self) -> list[psutil.Process]:
        children = psutil.Process(self.server.process.pid).children()
        return [each for each in children if "serve" in each.cmdline()]

    @asynccontextmanager
    async def client(self) -> AsyncIterator[aiohttp.ClientSession]:
        """A client that opens a connection for each request."""
        connector = aiohttp.TCPConnector(force_close=True)
        async with aiohttp.ClientSession(
            self.url, connector=connector, timeout=aiohttp.ClientTimeout(SECONDS)
        ) as client:
            yield client


class Stream(NamedTuple):
    """An answer that has begun, and the front end that sends it."""

    prompt: str
    beginning: bytes
    response: aiohttp.ClientResponse
    front: int

    async def text(self) -> str:
        return generated(self.beginning + await self.response.read())


def generated(stream: bytes) -> str:
    """Return the text of a whole stream: log probabilities depend on what is computed at the same time."""
    text: str = json.loads(stream.splitlines()[-1])["generated_text"]
    return text


def streaming(tokens: int) -> list[dict[str, object]]:
    """Return the bodies of requests for streams of that many tokens."""
    parameters = {"max_new_tokens": tokens, "ignore_eos_token": True}
    return [{"inputs": f"The number {number}", "parameters": parameters, "stream": True} for number in range(STREAMS)]


async def begin(served: Served, client: aiohttp.ClientSession, tokens: int = TOKENS) -> list[Stream]:
    """Begin streams, some of each front end."""
    bodies = streaming(tokens)
    responses = await asyncio.gather(*(client.post("/invocations", json=body) for body in bodies))
    beginnings = await asyncio.gather(*(response.content.readany() for response in responses))
    owners = {
        connection.raddr.port: front.pid
        for front in served.fronts
        for connection in front.net_connections("tcp")
        if connection.raddr
    }
    streams = []
    for body, beginning, response in zip(bodies, beginnings, responses, strict=True):
        assert response.connection is not None
        assert response.connection.transport is not None
        port = response.connection.transport.get_extra_info("sockname")[1]
        streams.append(Stream(str(body["inputs"]), beginning, response, owners[port]))
    assert len({each.front for each in streams}) == 2
    return streams


async def texts(streams: Iterable[Stream]) -> dict[str, str]:
    streams = list(streams)
    return dict(zip([each.prompt for each in streams], await asyncio.gather(*map(Stream.text, streams)), strict=True))


async def until_gone(processes: list[psutil.Process]) -> None:
    _, alive = await asyncio.to_thread(psutil.wait_procs, processes, timeout=SECONDS)
    assert alive == []


@asynccontextmanager
async def serving(*arguments: object, environment: Mapping[str, str] | None = None) -> AsyncIterator[Served]:
    async with lmi_serve(HELLO, "--port", 0, "--servers", 2, *arguments, environment=environment) as server:
        yield Served(server, await server.ready())


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def served() -> AsyncIterator[Served]:
    async with serving() as served:
        yield served


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def expected() -> dict[str, str]:
    """The answers of a server that has the engine for itself."""
    async with lmi_serve(HELLO, "--port", 0) as server:
        alone = Served(server, await server.ready())
        async with alone.client() as client:
            bodies = streaming(TOKENS)
            answers = await asyncio.gather(*(answer(client, body) for body in bodies))
            return {str(body["inputs"]): each for body, each in zip(bodies, answers, strict=True)}


async def answer(client: aiohttp.ClientSession, body: object) -> str:
    async with client.post("/invocations", json=body) as response:
        return generated(await response.read())


async def engine(client: aiohttp.ClientSession) -> int:
    """Return the process id of the engine."""
    async with client.get("/models/hello") as response:
        (group,) = (await response.json())[0]["models"][0]["workerGroups"]
    process_id: int = group["workers"][0]["processId"]
    return process_id


async def metrics(client: aiohttp.ClientSession) -> dict[str, float]:
    async with client.get("/metrics") as response:
        lines = [line for line in (await response.text()).splitlines() if line and not line.startswith("#")]
    names = Counter(line.rpartition(" ")[0] for line in lines)
    assert set(names.values()) == {1}
    return {name: float(value) for name, _, value in (line.rpartition(" ") for line in lines)}


async def test_requests_are_spread_and_answered_as_by_one_server(served: Served, expected: dict[str, str]) -> None:
    async with served.client() as client:
        before = await metrics(client)
        assert await texts(await begin(served, client)) == expected
        after = await metrics(client)
    name = next(name for name in after if name.startswith("lmi_requests_total") and 'reason="length"' in name)
    assert after[name] - before.get(name, 0) == STREAMS
    assert after['lmi_model_ready{model="hello"}'] == 1


async def test_a_killed_engine_is_invisible_to_clients_of_all_front_ends(
    served: Served, expected: dict[str, str]
) -> None:
    async with served.client() as client:
        restarts = (await metrics(client))[RESTARTS]
        streams = await begin(served, client)
        os.kill(await engine(client), signal.SIGKILL)
        assert await texts(streams) == expected
        assert (await metrics(client))[RESTARTS] == restarts + 1


async def test_a_killed_front_end_loses_its_own_connections_and_is_back(
    served: Served, expected: dict[str, str]
) -> None:
    async with served.client() as client:
        streams = await begin(served, client, tokens=1000)  # none ends before the kill
        killed, other = served.fronts
        number = json.loads(killed.environ()["LMI_FRONT"])["number"]
        os.kill(killed.pid, signal.SIGKILL)
        kept = [each for each in streams if each.front == other.pid]
        for prompt, text in (await texts(kept)).items():
            assert text.startswith(expected[prompt])
        for each in streams:
            if each.front == killed.pid:
                with pytest.raises(aiohttp.ClientError):
                    await each.text()
        await served.server.line_with(f"front end {number} was restarted")
        assert other.pid in (pids := {each.pid for each in served.fronts})
        assert len(pids) == 2
        assert killed.pid not in pids
        assert await texts(await begin(served, client)) == expected


async def test_what_front_ends_would_have_to_change_together_is_refused(served: Served) -> None:
    async with served.client() as client:
        for method, path in (
            ("POST", "/models?url=/somewhere"),
            ("PUT", "/models/hello?min_worker=2"),
            ("DELETE", "/models/hello"),
            ("POST", "/models/hello/adapters?name=a&src=a"),
            ("POST", "/server/logging?level=debug"),
        ):
            async with client.request(method, path) as response:
                assert response.status == 403, (method, path)
                assert "several front ends share the engines (--servers)" in (await response.json())["message"]


async def test_a_response_is_found_by_the_front_end_that_has_made_it(served: Served) -> None:
    async with served.client() as client:
        async with client.post(
            "/v1/responses", json={"model": "hello", "input": "Hi", "max_output_tokens": 16}
        ) as made:
            path = f"/v1/responses/{(await made.json())['id']}"
        found = set[int]()
        while len(found) < 2:
            async with client.get(path) as response:
                assert response.status in {200, 404}
                found.add(response.status)
                if response.status == 404:
                    message = (await response.json())["error"]["message"]
        assert message.endswith("or another front end has it (--servers)")


async def test_the_port_is_not_shared_with_other_servers(served: Served) -> None:
    port = served.url.rpartition(":")[2]
    async with lmi_serve(HELLO, "--port", port, "--servers", 2) as server:
        await server.line_with(f"cannot listen on 127.0.0.1:{port}: Address already in use")
        assert await server.process.wait() == 2


async def test_the_end_waits_for_the_requests_of_all_front_ends(served: Served, expected: dict[str, str]) -> None:
    """The signal reaches all processes, as from systemd. Run last of those that share the server."""
    async with served.client() as client:
        everything = psutil.Process(served.server.process.pid).children(recursive=True)
        streams = await begin(served, client)
        for process_id in (served.server.process.pid, *(each.pid for each in everything)):
            os.kill(process_id, signal.SIGTERM)
        assert await texts(streams) == expected
        assert await served.server.process.wait() == 0
        await until_gone(everything)


async def test_engines_that_are_given_up_end_the_server() -> None:
    async with serving("-o", "retry_threshold=0") as served, served.client() as client:
        os.kill(await engine(client), signal.SIGKILL)
        assert await served.server.process.wait() == 1


async def test_a_server_without_models() -> None:
    multi_model = {"SAGEMAKER_MULTI_MODEL": "true"}
    async with lmi_serve("--port", 0, "--servers", 2, environment=multi_model) as server:
        await server.line_with("--servers needs a model")
        assert await server.process.wait() == 2


async def test_nothing_outlives_the_parent() -> None:
    with tempfile.TemporaryDirectory() as folder:  # a short path, as sockets need
        async with serving(environment={"TMPDIR": folder}) as served:
            everything = psutil.Process(served.server.process.pid).children(recursive=True)
            served.server.process.kill()
            await until_gone(everything)
        assert [*Path(folder).glob("lmi-*")] == []


async def test_fewer_engines_than_front_ends_that_divide_them() -> None:
    options = ("-o", "option.rolling_batch=vllm", "-o", "minWorkers=2", "-o", "maxWorkers=2")
    async with lmi_serve(HELLO, "--port", 0, "--servers", 3, *options) as server:
        await server.line_with("--servers 3 needs at least as many engines")
        assert await server.process.wait() == 2


async def test_models_whose_engines_cannot_be_shared(model_dir: ModelDirectory) -> None:
    async with lmi_serve(model_dir({"serving.properties": SCRIPTED}), "--port", 0, "--servers", 2) as server:
        await server.line_with("--servers works with the backends torch and trtllm")
        assert await server.process.wait() == 2
