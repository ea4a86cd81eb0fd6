"""Measurements of servers with several engines, on this host and on a Ray cluster."""

import asyncio
import importlib
import json
import os
import shutil
import signal
import statistics
import sys
import tempfile
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO, Any, NamedTuple
from unittest.mock import patch

from tests.benchmarks.bench_server import INVOCATION
from tests.benchmarks.load_client import Load, Result, run
from tests.benchmarks.server_contenders import (
    HELLO,
    ROOT,
    LoadClient,
    Measure,
    Server,
    lmi_server,
    load_client,
)
from tests.benchmarks.simulated_engine import SEQUENCES

ENGINES = (1, 2, 4, 8)
STREAMS = 16  # of a round in which CPU time is measured
KILLED = 3  # engines, of which one is killed
LONG = 400  # tokens of the streams that see it
QUIET = ["--log-level", "error", "--no-access-log"]


class Scaling(NamedTuple):
    """The rate of a number of engines."""

    engines: int
    tokens_per_second: float
    busy: float  # share of a core, of the server's process


class Overhead(NamedTuple):
    """The cost of an engine's distance: medians, in seconds."""

    first_token: float
    cpu_per_token: float


class Pauses(NamedTuple):
    """The longest pauses in streams whose engine was killed, in seconds, and those of waves without a kill."""

    killed: list[float]
    quiet: list[float]


@contextmanager
def folder_and_log() -> Iterator[tuple[Path, IO[bytes]]]:
    paths = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    with (
        patch.dict(os.environ, PYTHONPATH=paths),  # where workers of Ray find the simulated engine
        tempfile.TemporaryDirectory() as folder,
        open(Path(folder) / "log", "wb") as log,
    ):
        yield Path(folder), log


def directory(folder: Path, engines: int, more: str = "") -> Path:
    found = folder / f"{engines}{'ray' if more else ''}" / "hello"
    shutil.copytree(HELLO, found)
    (found / "serving.properties").write_text(
        f"option.rolling_batch=torch\nminWorkers={engines}\nmaxWorkers={engines}\n"
        f"option.max_rolling_batch_size={SEQUENCES}\n{more}"
    )
    return found


def simulated_server(directory: Path, log: IO[bytes]) -> Server:
    module = "tests.benchmarks.simulated_engine"
    return Server([sys.executable, "-m", module, "serve", str(directory), *QUIET], log)


def scaling(rounds: int) -> list[Scaling]:
    """Return the rates of growing numbers of engines, all of which are full."""
    with folder_and_log() as (folder, log), load_client(log) as client:
        return [_rate(folder, log, client, engines, rounds) for engines in ENGINES]


def _rate(folder: Path, log: IO[bytes], client: LoadClient, engines: int, rounds: int) -> Scaling:
    with simulated_server(directory(folder, engines), log) as server:
        client.measure(server, INVOCATION, engines)
        measures = [client.measure(server, INVOCATION, engines * SEQUENCES) for _ in range(rounds)]
    rate = statistics.median(each.tokens / each.seconds for each in measures)
    return Scaling(engines, rate, statistics.median(each.cpu / each.seconds for each in measures))


def overheads(rounds: int) -> tuple[Overhead, Overhead]:
    """Return the cost of an engine on this host, and of one in an actor of Ray; they take turns."""
    with folder_and_log() as (folder, log), ExitStack() as stack:
        client = stack.enter_context(load_client(log))
        servers = [
            stack.enter_context(simulated_server(directory(folder, 1, more), log))
            for more in ("", "ray_address=local\n")
        ]
        first, cpu = [list[float]() for _ in servers], [list[Measure]() for _ in servers]
        for number in range(rounds + 1):
            for server, waits, measures in zip(servers, first, cpu, strict=True):
                singles = [client.measure(server, INVOCATION, 1) for _ in range(2)]
                measure = client.measure(server, INVOCATION, STREAMS)
                if number:  # the first round warms up
                    waits += [wait for each in singles for wait in each.first_token_seconds]
                    measures.append(measure)
        local, remote = (
            Overhead(statistics.median(waits), sum(each.cpu for each in found) / sum(each.tokens for each in found))
            for waits, found in zip(first, cpu, strict=True)
        )
        return local, remote


@contextmanager
def ray_address() -> Iterator[str]:
    """Yield the properties for a cluster with room for the engines, however few cores this machine has."""
    cluster: Any = importlib.import_module("ray.cluster_utils").Cluster()
    cluster.add_node(num_cpus=KILLED, include_dashboard=False)
    try:
        yield f"ray_address={cluster.address}\n"
    finally:
        cluster.shutdown()


def pauses_on_ray(kills: int) -> Pauses:
    with ray_address() as more:
        return pauses(kills, more)


def pauses(kills: int, more: str = "") -> Pauses:
    """Return the pauses that clients see when one of the torch engines is killed."""
    with folder_and_log() as (folder, log), lmi_server(directory(folder, KILLED, more), log) as server:
        return asyncio.run(_pauses(server, kills))


async def _pauses(server: Server, kills: int) -> Pauses:
    found = Pauses([], [])
    for number in range(kills):
        quiet = await _wave(server)
        found.quiet.append(max(quiet.longest_gaps))
        victim = (await asyncio.to_thread(workers, server))[number % KILLED]
        wave = asyncio.create_task(_wave(server))
        await asyncio.sleep(quiet.seconds / 3)
        os.kill(victim, signal.SIGKILL)
        found.killed.append(max((await wave).longest_gaps))
        while len(await asyncio.to_thread(workers, server)) < KILLED:
            await asyncio.sleep(0.2)
    return found


async def _wave(server: Server) -> Result:
    body = json.dumps(INVOCATION.body | {"parameters": {"max_new_tokens": LONG, "ignore_eos_token": True}})
    return await run(Load(server.port, INVOCATION.path, body, STREAMS, INVOCATION.mark, INVOCATION.end))


def workers(server: Server) -> list[int]:
    """Return the process ids of the engines that accept requests."""
    with urllib.request.urlopen(f"http://127.0.0.1:{server.port}/models/hello") as answer:
        (group,) = json.load(answer)[0]["models"][0]["workerGroups"]
    return [each["processId"] for each in group["workers"]]
