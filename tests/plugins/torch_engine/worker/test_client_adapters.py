"""Adapters in the worker process, from the server's side."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
import torch

from lmi_core.errors import AdapterNotFound, BackendUnhealthy, InvalidAdapter
from lmi_core.workers.placement import Placement
from lmi_core.workers.replicas import ReplicaCount
from lmi_plugins.torch_engine.client.client import EngineClient
from lmi_plugins.torch_engine.messages.requests import AdapterTensors, EngineOptions, SamplingParameters
from tests.plugins.torch_engine.adapters.lora_adapters import adapter_tensors, merged_model, save_adapter
from tests.plugins.torch_engine.client.test_client import until_healthy
from tests.plugins.torch_engine.conftest import ModelDirectory, ReferenceModel
from tests.plugins.torch_engine.tensor_data import to_data
from tests.plugins.torch_engine.tiny_models import reference_ids

pytestmark = pytest.mark.asyncio(loop_scope="module")

PROMPT = [5, 9, 200, 31, 77]
COUNT = 20


@pytest.fixture(scope="module")
def adapters(tmp_path_factory: pytest.TempPathFactory, reference: ReferenceModel) -> dict[str, Path]:
    base = tmp_path_factory.mktemp("adapters")
    return {name: save_adapter(base / name, reference("llama"), seed) for seed, name in enumerate("abc")}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def client(model_directory: ModelDirectory, adapters: dict[str, Path]) -> AsyncIterator[EngineClient]:
    options = EngineOptions(str(model_directory("llama")), threads=1, adapters={"a": str(adapters["a"])})
    client = EngineClient(options, retry_threshold=3)
    await client.start()
    yield client
    await client.stop()


async def generated(client: EngineClient, adapter: str | None) -> list[int]:
    steps = client.generate(PROMPT, SamplingParameters(max_new_tokens=COUNT), adapter)
    return [token.id async for step in steps for token in step.tokens]


async def test_loading_and_unloading_beside_requests(
    client: EngineClient, adapters: dict[str, Path], model_directory: ModelDirectory, reference: ReferenceModel
) -> None:
    expected = {
        name: reference_ids(merged_model(model_directory("llama"), adapters[name]), PROMPT, COUNT) for name in "abc"
    }
    assert client.adapters == ["a"]
    going = asyncio.gather(*(generated(client, "a") for _ in range(3)))
    await asyncio.gather(
        client.load_adapter("b", str(adapters["b"])), client.load_adapter("c", adapter_tensors(adapters["c"]))
    )
    assert sorted(client.adapters) == ["a", "b", "c"]
    assert await generated(client, "b") == expected["b"]
    assert await generated(client, "c") == expected["c"]
    await client.unload_adapter("b")
    assert sorted(client.adapters) == ["a", "c"]
    with pytest.raises(AdapterNotFound, match="there is no adapter `b`"):
        await generated(client, "b")
    assert await going == [expected["a"]] * 3
    assert await generated(client, None) == reference_ids(reference("llama"), PROMPT, COUNT)


async def test_what_cannot_be_loaded_or_unloaded(client: EngineClient, tmp_path: Path) -> None:
    before = client.adapters
    with pytest.raises(InvalidAdapter, match=r"there is no .*adapter_config.json"):
        await client.load_adapter("x", str(tmp_path))
    with pytest.raises(InvalidAdapter, match="is not a LoRA matrix of a linear layer"):
        await client.load_adapter("x", AdapterTensors({"y": to_data(torch.ones(2))}))
    with pytest.raises(AdapterNotFound):
        await client.unload_adapter("x")
    assert client.adapters == before


async def test_a_new_worker_has_those_with_a_directory(client: EngineClient, adapters: dict[str, Path]) -> None:
    await client.load_adapter("b", str(adapters["b"]))
    await client.load_adapter("c", adapter_tensors(adapters["c"]))
    await client.pin_adapter("b", True)
    expected = await generated(client, "b")
    assert client.replicas.first.process_id is not None
    os.kill(client.replicas.first.process_id, signal.SIGSTOP)
    change = asyncio.create_task(client.load_adapter("d", str(adapters["c"])))
    await asyncio.sleep(0)
    os.kill(client.replicas.first.process_id, signal.SIGKILL)
    with pytest.raises(BackendUnhealthy, match="the adapter was not changed: the worker ended"):
        await change
    await until_healthy(client)
    assert sorted(client.adapters) == ["a", "b"]
    assert await generated(client, "b") == expected
    await client.pin_adapter("a", True)
    await client.load_adapter("d", str(adapters["c"]))
    await client.load_adapter("e", str(adapters["c"]))
    await client.pin_adapter("d", True)
    with pytest.raises(InvalidAdapter, match="Pinned: a, b, d"):  # b as before
        await client.pin_adapter("e", True)
    for name in ("a", "d"):
        await client.pin_adapter(name, False)
    await client.pin_adapter("e", True)


async def test_all_engines_have_them_or_none(
    model_directory: ModelDirectory, adapters: dict[str, Path], tmp_path: Path
) -> None:
    options = EngineOptions(str(model_directory("llama")), threads=1, adapters={"a": str(adapters["a"])})
    client = EngineClient(options, retry_threshold=3, placement=Placement(replicas=ReplicaCount(2, 2)), resume=True)
    await client.start()
    try:
        first, second = client.replicas.members
        await client.load_adapter("b", str(adapters["b"]))
        expected = await generated(client, "b")
        assert [sorted(each.adapters) for each in (first, second)] == [["a", "b"]] * 2
        await second.unload_adapter("b")
        await second.load_adapter("c", str(adapters["c"]))
        with pytest.raises(AdapterNotFound):  # one engine has not had it: the other one has it again
            await client.unload_adapter("b")
        assert sorted(first.adapters) == ["a", "b"]
        assert client.adapters == ["a"]
        await client.load_adapter("b", str(adapters["b"]))
        with pytest.raises(InvalidAdapter):
            await client.load_adapter("b", str(tmp_path))
        await client.replicas.scale(ReplicaCount(3, 3))
        third = client.replicas.members[2]
        assert sorted(third.adapters) == ["a", "b"]
        assert first.process_id is not None
        os.kill(first.process_id, signal.SIGKILL)
        await asyncio.sleep(0)
        assert await asyncio.gather(*(generated(client, "b") for _ in range(6))) == [expected] * 6
        await client.load_adapter("d", str(adapters["c"]))  # waits for the one that is restarted
        assert [sorted(each.adapters) for each in (first, third)] == [["a", "b", "d"]] * 2
    finally:
        await client.stop()
