"""Engines on the nodes of a Ray cluster: actors and a node are killed under load, which no client sees."""

import asyncio
import importlib
import os
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.clients.test_every_dialect import DIALECTS, HELLO, QUESTIONS
from tests.clients.test_resumption import ask, engine_of
from tests.conftest import RunningServer, Serve
from tests.handlers.management.asking import describe

COUNT = 18  # requests at once
NODES = 3


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    """A cluster of this machine, each of whose nodes has room for one engine."""
    cluster: Any = importlib.import_module("ray.cluster_utils").Cluster(
        initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False}
    )
    for _ in range(NODES - 1):
        cluster.add_node(num_cpus=1)
    try:
        yield cluster
    finally:
        importlib.import_module("ray").shutdown()
        cluster.shutdown()


def directory_for(cluster: Any, folder: Path, rolling_batch: str) -> Path:
    directory = folder / "hello"
    shutil.copytree(HELLO, directory)
    (directory / "serving.properties").write_text(
        f"option.rolling_batch={rolling_batch}\nray_address={cluster.address}\nminWorkers={NODES}\n"
    )
    return directory


async def workers(server: RunningServer) -> list[dict[str, Any]]:
    (group,) = (await describe(server, "hello"))["workerGroups"]
    return list(group["workers"])


async def test_no_client_sees_it(serve: Serve, tmp_path: Path, cluster: Any) -> None:
    server = await serve(directory_for(cluster, tmp_path, "torch"))
    replicas = engine_of(server).replicas
    asked = [(name, question) for question in QUESTIONS for name in DIALECTS][:COUNT]
    expected = await asyncio.gather(*(ask(server, *each) for each in asked))

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
    removed = next(iter(cluster.worker_nodes))
    cluster.add_node(num_cpus=1)
    answering = await at_work()
    await asyncio.to_thread(cluster.remove_node, removed)
    assert await asyncio.gather(*answering) == expected
    for each in replicas.members:
        await each.available()
    assert len(await workers(server)) == NODES


async def test_what_runs_goes_on_without_the_head(serve: Serve, tmp_path: Path, cluster: Any) -> None:
    """Run last: the cluster has no head any more."""
    server = await serve(directory_for(cluster, tmp_path, "torch"))
    asked = [(name, question) for question in QUESTIONS for name in DIALECTS][:COUNT]
    expected = await asyncio.gather(*(ask(server, *each) for each in asked))
    answering = [asyncio.create_task(ask(server, *each)) for each in asked]
    await asyncio.to_thread(cluster.head_node.kill_gcs_server)
    assert await asyncio.gather(*answering) == expected
    assert await asyncio.gather(*(ask(server, *each) for each in asked)) == expected
