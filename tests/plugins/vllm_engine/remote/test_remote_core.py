"""A core on another machine, as the server sees it; tests/clients/test_ray.py runs real ones."""

import asyncio
import json
from types import SimpleNamespace
from typing import Any, cast

import pytest

from lmi_core.workers.channel import Channel, Keys
from lmi_plugins.vllm_engine.library import VERSION
from lmi_plugins.vllm_engine.remote.messages import (
    CoreEnded,
    EndCore,
    FromCore,
    LoadCore,
    decode_from_core,
)
from lmi_plugins.vllm_engine.remote.remote_core import RemoteCore, _client_arguments
from lmi_plugins.vllm_engine.remote.start import run
from tests.plugins.vllm_server import HELLO


class Worker:
    """An actor that ends its core when it is told to, or once `may_end` is set."""

    def __init__(self) -> None:
        self.endpoint = SimpleNamespace(place=None)
        self.sent: list[object] = []
        self.may_end = asyncio.Event()
        self.stopped = 0

    def send(self, message: object) -> None:
        self.sent.append(message)

    async def follow(self, deliver: Any) -> str:
        await self.may_end.wait()
        deliver(CoreEnded("it was told to"))
        await asyncio.get_running_loop().create_future()
        return ""

    async def stop(self) -> None:
        self.stopped += 1


@pytest.fixture
async def core() -> RemoteCore:
    core = RemoteCore("local", gpus=0, share=1)
    await core._worker.stop()
    core._worker = cast("Any", Worker())
    core._following = asyncio.create_task(core._follow())
    return core


async def test_the_end_of_a_core_is_waited_for_by_whoever_is_cancelled(core: RemoteCore) -> None:
    worker = cast("Any", core._worker)
    stopping = asyncio.create_task(core.stop())
    while not worker.sent:
        await asyncio.sleep(0)
    stopping.cancel()
    await asyncio.sleep(0)
    worker.may_end.set()
    with pytest.raises(asyncio.CancelledError):
        await stopping
    assert (worker.sent, worker.stopped, core.cause) == ([EndCore()], 1, None)
    await core.stop()
    assert worker.sent == [EndCore()]


async def test_the_cause_of_a_death_arrives_later(core: RemoteCore) -> None:
    waiting = asyncio.create_task(core.wait_ended())
    await asyncio.sleep(0)
    cast("Any", core._worker).may_end.set()
    await waiting
    assert core.cause == "it was told to"
    assert core._manager.lost.is_set()
    await core.stop()


def test_the_client_has_one_device() -> None:
    draft = {"model": str(HELLO), "num_speculative_tokens": 2, "draft_tensor_parallel_size": 2}
    given = {
        "model": str(HELLO),
        "tensor_parallel_size": "4",
        "pipeline_parallel_size": "2",
        "decode_context_parallel_size": "2",
        "distributed_executor_backend": "mp",
        "speculative_config": json.dumps(draft),
    }
    arguments = _client_arguments(given, "hello", "127.0.0.1")
    config = arguments.create_engine_config()
    assert (config.parallel_config.world_size, config.parallel_config.data_parallel_size_local) == (1, 0)
    assert (arguments.served_model_name, arguments.data_parallel_address) == ("hello", "127.0.0.1")


def test_a_node_with_another_vllm(monkeypatch: pytest.MonkeyPatch) -> None:
    keys = Keys(b"", b"")
    load = LoadCore("0.0.1", {"model": "m"}, None, "tcp://127.0.0.1:1", keys)
    sent: list[FromCore] = []
    channel = SimpleNamespace(begin=lambda _: load, send=lambda data: sent.append(decode_from_core(data)))
    run(cast("Channel", channel))
    assert f"has vLLM {VERSION}, and the server's host 0.0.1: install the same" in str(sent[0])
