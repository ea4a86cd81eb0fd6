"""Requests as tensors on the trtllm backend, whose engine is in a worker process."""

import asyncio
import json
import os
import signal
import tempfile
import threading
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import numpy
import pytest
import pytest_asyncio

from lmi_core.backend import BackendSetup
from lmi_core.configuration.configuration import Configuration
from lmi_core.errors import InvalidParameter
from lmi_core.generation.tensors import Tensor
from lmi_core.workers.shared_worker import HOST_VARIABLE
from lmi_core.workers.worker_host import WorkerHost
from lmi_plugins.backends.trtllm import TrtllmBackend
from lmi_plugins.backends.trtllm_properties import TrtllmProperties
from lmi_plugins.torch_engine.messages.requests import SamplingParameters
from lmi_plugins.trtllm.requests.inference_request import InferenceRequest
from lmi_plugins.trtllm.requests.value_checks import MAX_WORDS, PADDING
from tests.plugins.torch_engine.adapters.lora_adapters import merged_model, save_adapter
from tests.plugins.torch_engine.conftest import ModelDirectory, ReferenceModel
from tests.plugins.torch_engine.tiny_models import (
    CONTEXT,
    LLAMA,
    VOCABULARY,
    reference_ids,
    save_configured,
    save_tokenizer,
)
from tests.plugins.trtllm.asking import PROMPT
from tests.plugins.trtllm.requests.lora_rows import lora_tensors, task_id

pytestmark = pytest.mark.asyncio(loop_scope="module")

LONG = CONTEXT - 3
OPTIONS = {"max_rolling_batch_size": 4, "max_input_len": 20, "max_output_len": LONG, "max_loras": 2}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def backend(
    model_directory: ModelDirectory, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[TrtllmBackend]:
    async with started(tmp_path_factory.mktemp("trtllm"), model_directory("llama")) as backend:
        yield backend


@asynccontextmanager
async def started(directory: Path, model: Path) -> AsyncGenerator[TrtllmBackend, None]:
    options = OPTIONS | {"model_id": model}
    (directory / "serving.properties").write_text("".join(f"option.{key}={options[key]}\n" for key in options))
    properties = Configuration.read(directory, {}).load(TrtllmProperties)
    backend = TrtllmBackend(BackendSetup(directory, properties, {}, retry_threshold=5))
    await backend.start()
    try:
        yield backend
    finally:
        await backend.stop()


def tensors(count: int = 6, **others: Any) -> Mapping[str, Tensor]:
    return InferenceRequest(0, {"input_ids": [PROMPT], "request_output_len": [[count]]} | others).tensors


def begin(backend: TrtllmBackend, count: int = 6, **others: Any) -> AsyncGenerator[Mapping[str, Tensor], None]:
    return backend.infer(0, tensors(count, **others))


async def rest(responses: AsyncGenerator[Mapping[str, Tensor], None]) -> list[int]:
    return [token_id async for response in responses for token_id in response["output_ids"].array()[0].tolist()]


async def generated(backend: TrtllmBackend, count: int = 6, **others: Any) -> list[int]:
    return await rest(begin(backend, count, **others))


async def test_the_same_as_without_a_worker(backend: TrtllmBackend, reference: ReferenceModel) -> None:
    expected = reference_ids(reference("llama"), PROMPT, 20)
    assert await generated(backend, 20) == expected
    assert await generated(backend, 20, streaming=[True]) == expected


async def test_requests_are_refused_one_by_one(backend: TrtllmBackend) -> None:
    """Requests are refused by the checks of tensors, the limits, the model, and the adapter cache."""
    going = asyncio.create_task(generated(backend, 100))
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"input_ids": Tensor("INT32", (1, 0), b"")}, "`input_ids` must not be empty"),
        ({"top_k": Tensor("INT32", (1,), bytes(4))}, "`top_k` is not an input tensor"),
        ({"input_ids": Tensor.of("INT32", (1, 21), [1] * 21)}, "`input_ids` must have at most 20 tokens"),
        ({"end_id": Tensor.of("INT32", (1,), [VOCABULARY])}, "`end_id` must contain token ids"),
        ({"lora_task_id": Tensor.from_array(task_id(4))}, "`lora_task_id` must be cached"),
    ]
    for given, message in wrong:
        with pytest.raises(InvalidParameter, match=f"^{message}"):
            await rest(backend.infer(0, {**tensors(), **given}))
    assert len(await going) == 100
    assert backend.engine.in_flight == 0


async def test_megabytes_of_words_are_read_beside_the_event_loop(backend: TrtllmBackend) -> None:
    words = numpy.full((1, 2, 1000 * MAX_WORDS), VOCABULARY, "int32")
    words[0, 1] = PADDING
    words[0, 1, :MAX_WORDS] = range(1000, words.shape[-1] + 1, 1000)
    reading, turns = asyncio.create_task(generated(backend, stop_words_list=words)), 0
    while not reading.done():
        await asyncio.sleep(0)
        turns += 1
    with pytest.raises(InvalidParameter, match=r"^`stop_words_list` must contain token ids"):
        await reading
    assert turns > 10  # on the loop, it would take two


async def test_a_vocabulary_that_the_configuration_does_not_name(tmp_path: Path) -> None:
    """The vocabulary has the size that is the architecture's default, as for the config.json of gemma-3."""
    model, default = tmp_path / "model", 32_000
    save_tokenizer(model)
    save_configured(model, "llama", LLAMA | {"vocab_size": default})
    config = json.loads((model / "config.json").read_text())
    del config["vocab_size"]
    (model / "config.json").write_text(json.dumps(config))
    async with started(tmp_path, model) as backend:
        assert len(await generated(backend, end_id=[default - 1])) == 6
        with pytest.raises(InvalidParameter, match=r"^`end_id` must contain token ids from 0 to 31999\. Given: 32000$"):
            await generated(backend, end_id=[default])


async def test_closing_stops(backend: TrtllmBackend) -> None:
    """Four that run for ever fill the batch; a fifth waits until one is closed."""
    endless = [begin(backend, LONG, streaming=[True]) for _ in range(4)]
    for stream in endless:
        await anext(stream)
    last = asyncio.create_task(generated(backend, 2))
    for stream in endless:
        await stream.aclose()
    assert len(await last) == 2
    assert backend.engine.in_flight == 0


async def test_adapters_of_requests(
    backend: TrtllmBackend, model_directory: ModelDirectory, reference: ReferenceModel, tmp_path: Path
) -> None:
    """More than there are places for, at once, and by id alone; texts cannot use them, and wrong ones are refused."""
    folders = [save_adapter(tmp_path / str(seed), reference("llama"), seed, rank=4) for seed in range(3)]
    expected = [reference_ids(merged_model(model_directory("llama"), folder), PROMPT, 12) for folder in folders]
    given: list[dict[str, Any]] = [
        {"lora_task_id": task_id(seed), **lora_tensors(folder)} for seed, folder in enumerate(folders)
    ]
    assert await asyncio.gather(*(generated(backend, 12, **each) for each in given)) == expected
    assert await generated(backend, 12, **given[0]) == expected[0]
    assert await generated(backend, 12, lora_task_id=task_id(0)) == expected[0]
    assert not backend.adapters
    worker = backend.engine.replicas.first
    before = worker.adapters
    for each in given:
        await generated(backend, **each)
    evicted = set(before) - set(worker.adapters)
    assert evicted
    assert all(worker.adapter_state(name) is None for name in evicted)
    for row, message in (([8, 0, 4], "`lora_config` must have rows of"), ([1, 0, 17], "`lora_weights` cannot be used")):
        wrong: dict[str, Any] = {"lora_weights": [[0.0] * 2000], "lora_config": [row]}
        with pytest.raises(InvalidParameter, match=f"^{message}"):
            await generated(backend, lora_task_id=task_id(9), **wrong)


async def test_servers_that_share_an_engine(
    model_directory: ModelDirectory, reference: ReferenceModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only the one that got the weights knows the id; the other asks for them."""
    given: dict[str, Any] = lora_tensors(save_adapter(tmp_path / "adapter", reference("llama"), 5, rank=4))
    with tempfile.TemporaryDirectory() as folder:
        host = WorkerHost(Path(folder))
        await host.start()
        monkeypatch.setenv(HOST_VARIABLE, str(host.address))
        model = model_directory("llama")
        async with started(tmp_path, model) as first, started(tmp_path, model) as second:
            assert first.engine.replicas.process_ids == second.engine.replicas.process_ids
            plain = await asyncio.gather(generated(first), generated(second))
            assert plain[0] == plain[1]
            expected = await generated(first, lora_task_id=task_id(5), **given)
            assert await generated(first, lora_task_id=task_id(5)) == expected != plain[0]
            with pytest.raises(InvalidParameter, match=r"^`lora_task_id` must be cached"):
                await generated(second, lora_task_id=task_id(5))
            assert await generated(second, lora_task_id=task_id(5), **given) == expected
            assert await generated(second, lora_task_id=task_id(5)) == expected
        await host.stop()


async def test_other_weights_under_the_same_id_at_the_same_time(
    backend: TrtllmBackend, model_directory: ModelDirectory, reference: ReferenceModel, tmp_path: Path
) -> None:
    """Each request gets the weights that it brings; an id alone means the latest."""
    folders = [save_adapter(tmp_path / str(seed), reference("llama"), seed, rank=4) for seed in (6, 7)]
    expected = [reference_ids(merged_model(model_directory("llama"), folder), PROMPT, 12) for folder in folders]
    first, second = [{"lora_task_id": task_id(6), **lora_tensors(folder)} for folder in folders]
    assert await asyncio.gather(*(generated(backend, 12, **each) for each in [first, second] * 5)) == expected * 5
    for given, ids in zip((first, second, first), (*expected, expected[0]), strict=True):
        assert await generated(backend, 12, **given) == ids
        assert await generated(backend, 12, lora_task_id=task_id(6)) == ids


async def test_an_adapter_while_every_thread_for_files_is_busy(
    backend: TrtllmBackend, reference: ReferenceModel, tmp_path: Path
) -> None:
    done, threads = threading.Event(), 32  # as many as the event loop has at most
    busy = [asyncio.get_running_loop().run_in_executor(None, done.wait) for _ in range(threads)]
    try:
        adapter = lora_tensors(save_adapter(tmp_path / "adapter", reference("llama"), 9, rank=4))
        async with asyncio.timeout(60):
            assert len(await generated(backend, lora_task_id=task_id(9), **adapter)) == 6
    finally:
        done.set()
        await asyncio.gather(*busy)


async def test_an_adapter_that_directories_have_displaced(
    backend: TrtllmBackend, reference: ReferenceModel, tmp_path: Path
) -> None:
    """The engine tells nobody; a request that brings the weights again is served, and one without them refused."""
    folders = [save_adapter(tmp_path / str(seed), reference("llama"), seed, rank=4) for seed in range(3)]
    for name in ("a", "b"):
        await backend.load_adapter(name, folders.pop())
    given: dict[str, Any] = {"lora_task_id": task_id(8), **lora_tensors(folders.pop())}

    async def displace() -> None:
        for name in ("a", "b"):
            async for _ in backend.engine.generate(PROMPT, SamplingParameters(max_new_tokens=2), name):
                pass

    expected = await generated(backend, **given)
    await displace()
    assert await generated(backend, **given) == expected
    await displace()
    with pytest.raises(InvalidParameter, match=r"^`lora_task_id` must be cached, .* Given: 8, cached: none$"):
        await generated(backend, lora_task_id=task_id(8))
    for name in ("a", "b"):
        await backend.unload_adapter(name)


async def test_answers_are_as_without_a_killed_worker(
    backend: TrtllmBackend, reference: ReferenceModel, tmp_path: Path
) -> None:
    adapter = lora_tensors(save_adapter(tmp_path / "adapter", reference("llama"), 5, rank=4))
    given: list[dict[str, Any]] = [
        {"streaming": [True]},
        {"streaming": [True], "runtime_top_k": [50], "random_seed": [7]},
        {"runtime_top_k": [50], "random_seed": [8]},
        {"beam_width": [3]},
        {"lora_task_id": task_id(5), **adapter},
    ]
    expected = await asyncio.gather(*(generated(backend, LONG, **each) for each in given))
    first = begin(backend, LONG, **given[0])
    ids = (await anext(first))["output_ids"].array()[0].tolist()
    others = [asyncio.create_task(generated(backend, LONG, **each)) for each in given[1:]]
    async with asyncio.timeout(60):
        while backend.engine.in_flight < len(given):
            await asyncio.sleep(0)
    killed = backend.engine.replicas.first.process_id
    assert killed is not None
    os.kill(killed, signal.SIGSTOP)  # so that it does not finish before it is killed
    os.kill(killed, signal.SIGKILL)
    assert [ids + await rest(first), *await asyncio.gather(*others)] == expected
    assert backend.engine.replicas.first.process_id != killed
    assert backend.engine.in_flight == 0
