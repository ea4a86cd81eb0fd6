"""The manager in its worker process, from the server's side."""

import asyncio
import os
import signal
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import aclosing
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import AsyncMock

import pytest
import pytest_asyncio

from lmi_core.errors import BackendUnhealthy, ConfigurationError, GenerationFailed, InvalidParameter, RequestAborted
from lmi_core.generation.tensors import Tensor
from lmi_core.workers import restarts
from lmi_core.workers.local_process import LocalProcess
from lmi_plugins.torch_engine.messages.protocol import failure
from lmi_plugins.torch_engine.messages.requests import EngineOptions
from lmi_plugins.torch_engine.messages.results import StepFailed
from lmi_plugins.trtllm import client as trtllm_client
from lmi_plugins.trtllm.client import ManagerClient, ManagerWorker, Replay
from lmi_plugins.trtllm.protocol import ResponseMessage, Responses
from lmi_plugins.trtllm.requests.inference_request import InferenceRequest
from lmi_plugins.trtllm.requests.limits import NO_LIMITS, RequestLimits
from tests.plugins.torch_engine.conftest import ModelDirectory, ReferenceModel
from tests.plugins.torch_engine.poisoned_worker import POISON, TRTLLM, importable_in_workers
from tests.plugins.torch_engine.tiny_models import CONTEXT, VOCABULARY, reference_ids
from tests.plugins.trtllm.adapters.lora_rows import task_id
from tests.plugins.trtllm.asking import PROMPT

pytestmark = pytest.mark.asyncio(loop_scope="module")

LIMITS = RequestLimits(max_input_len=20)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def client(model_directory: ModelDirectory) -> AsyncIterator[ManagerClient]:
    client = ManagerClient(EngineOptions(str(model_directory("llama")), max_batch_size=4), LIMITS, retry_threshold=3)
    await client.replicas.start()
    assert (client.loaded.max_length, client.loaded.vocabulary, client.loaded.eos_token_ids) == (
        CONTEXT,
        VOCABULARY,
        [],
    )
    yield client
    process_id = client.replicas.first.process_id
    assert process_id is not None
    await client.replicas.stop()
    with pytest.raises(ProcessLookupError):
        os.kill(process_id, 0)


def tensors(count: int = 6, **others: Any) -> Mapping[str, Tensor]:
    return InferenceRequest(0, {"input_ids": [PROMPT], "request_output_len": [[count]]} | others).tensors


async def generated(client: ManagerClient, given: Mapping[str, Tensor]) -> list[int]:
    responses = [response async for response in client.infer(client.new_id(), given)]
    return [token_id for response in responses for token_id in response["output_ids"].array()[0].tolist()]


async def test_the_same_as_without_a_worker(client: ManagerClient, reference: ReferenceModel) -> None:
    expected = reference_ids(reference("llama"), PROMPT, 20)
    assert await generated(client, tensors(20)) == expected
    assert await generated(client, tensors(20, streaming=[True])) == expected


async def test_more_requests_than_fit_in_a_batch(client: ManagerClient, reference: ReferenceModel) -> None:
    answers = await asyncio.gather(*(generated(client, tensors(count)) for count in range(1, 20)))
    whole = reference_ids(reference("llama"), PROMPT, 19)
    assert answers == [whole[:count] for count in range(1, 20)]


async def test_requests_are_refused_one_by_one(client: ManagerClient) -> None:
    """Requests are refused by the checks of tensors, the limits, the model, and the adapter cache."""
    going = asyncio.create_task(generated(client, tensors(100)))
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"input_ids": Tensor("INT32", (1, 0), b"")}, "`input_ids` must not be empty"),
        ({"top_k": Tensor("INT32", (1,), bytes(4))}, "`top_k` is not an input tensor"),
        ({"input_ids": Tensor.of("INT32", (1, 21), [1] * 21)}, "`input_ids` must have at most 20 tokens"),
        ({"end_id": Tensor.of("INT32", (1,), [VOCABULARY])}, "`end_id` must contain token ids"),
        ({"lora_task_id": Tensor.from_array(task_id(4))}, "`lora_task_id` must be cached"),
    ]
    for given, message in wrong:
        with pytest.raises(InvalidParameter, match=f"^{message}"):
            await generated(client, {**tensors(), **given})
    assert len(await going) == 100
    assert client.in_flight == 0


async def test_closing_stops(client: ManagerClient) -> None:
    """Four that run for ever fill the batch; a fifth waits until one is closed."""
    endless = [client.infer(client.new_id(), tensors(CONTEXT - 3, streaming=[True])) for _ in range(4)]
    for stream in endless:
        await anext(stream)
    last = asyncio.create_task(generated(client, tensors(2)))
    for stream in endless:
        await stream.aclose()
    assert len(await last) == 2
    assert client.in_flight == 0


async def test_stopping_ends_whoever_waits(client: ManagerClient) -> None:
    request_id = client.new_id()
    async with aclosing(client.infer(request_id, tensors(CONTEXT - 3, streaming=[True]))) as responses:
        await anext(responses)
        client.stop_request(request_id)
        with pytest.raises(RequestAborted):
            async for _ in responses:
                pass
    client.stop_request(request_id)  # again, which changes nothing
    assert len(await generated(client, tensors())) == 6


async def test_a_killed_worker_fails_its_requests_and_is_replaced(client: ManagerClient) -> None:
    killed = client.replicas.first.process_id
    assert killed is not None
    responses = client.infer(client.new_id(), tensors(CONTEXT - 3, streaming=[True]))
    await anext(responses)
    os.kill(killed, signal.SIGSTOP)  # so that it does not finish before it is killed
    os.kill(killed, signal.SIGKILL)
    with pytest.raises(GenerationFailed, match="the request was lost: the worker ended with exit code -9"):
        async for _ in responses:
            pass
    with pytest.raises(BackendUnhealthy, match="is being restarted"):
        await generated(client, tensors())
    async with asyncio.timeout(60):
        while client.replicas.first.process_id is None:
            await asyncio.sleep(0.05)
    assert client.replicas.first.process_id != killed
    assert len(await generated(client, tensors())) == 6


LONG = CONTEXT - 3
ANSWERS: dict[str, dict[str, Any]] = {
    "greedy": {"streaming": [True]},
    "sampled": {"streaming": [True], "runtime_top_k": [50], "random_seed": [7]},
    "whole": {"runtime_top_k": [50], "random_seed": [8]},
    "beams": {"beam_width": [3]},
}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def resuming(model_directory: ModelDirectory) -> AsyncIterator[ManagerClient]:
    options = EngineOptions(str(model_directory("llama")), max_batch_size=8)
    with importable_in_workers() as patch:
        patch.setattr(trtllm_client, "WORKER_TARGET", TRTLLM)
        client = ManagerClient(options, LIMITS, retry_threshold=5, resume=True)
        await client.replicas.start()
        yield client
        await client.replicas.stop()


async def kill(client: ManagerClient) -> None:
    """Kill the worker while it has requests, which it cannot end meanwhile."""
    killed = client.replicas.first.process_id
    assert killed is not None
    os.kill(killed, signal.SIGSTOP)
    os.kill(killed, signal.SIGKILL)
    async with asyncio.timeout(60):
        while client.replicas.first.process_id == killed:
            await asyncio.sleep(0.01)


async def test_answers_are_as_without_a_killed_worker(resuming: ManagerClient) -> None:
    given = [tensors(LONG, **each) for each in ANSWERS.values()]
    expected = await asyncio.gather(*(generated(resuming, each) for each in given))
    first = resuming.infer(resuming.new_id(), given[0])
    ids = [(await anext(first))["output_ids"].array()[0].tolist() for _ in range(5)]
    others = [asyncio.create_task(generated(resuming, each)) for each in given[1:]]
    async with asyncio.timeout(60):
        while resuming.in_flight < len(given):
            await asyncio.sleep(0)
    await kill(resuming)
    ids += [response["output_ids"].array()[0].tolist() async for response in first]
    assert [[token_id for each in ids for token_id in each], *await asyncio.gather(*others)] == expected
    assert resuming.in_flight == 0


async def test_a_request_that_makes_steps_fail_ends_alone(resuming: ManagerClient) -> None:
    given = [tensors(LONG, **each) for each in ANSWERS.values()]
    expected = await asyncio.gather(*(generated(resuming, each) for each in given))
    worker = resuming.replicas.first.process_id
    first = resuming.infer(resuming.new_id(), given[0])
    ids = (await anext(first))["output_ids"].array()[0].tolist()
    others = [asyncio.create_task(generated(resuming, each)) for each in given[1:]]
    poison = tensors(LONG, input_ids=[POISON])
    # The five of them are tried in groups, which do not always have the same requests.
    why = r"The generation failed: poisoned; it is not tried again, because the engine failed [345] times "
    why += "while running it"
    with pytest.raises(GenerationFailed, match=f"^{why}$"):
        await generated(resuming, poison)
    ids += [token_id async for response in first for token_id in response["output_ids"].array()[0].tolist()]
    assert [ids, *await asyncio.gather(*others)] == expected
    with pytest.raises(GenerationFailed, match="failed 3 times while running it"):  # without company
        await generated(resuming, poison)
    assert resuming.replicas.first.process_id == worker
    assert resuming.in_flight == 0


async def test_one_that_is_stopped_between_two_workers_is_not_run_again(resuming: ManagerClient) -> None:
    request_id = resuming.new_id()
    responses = resuming.infer(request_id, tensors(LONG, streaming=[True]))
    await anext(responses)
    waiting = asyncio.create_task(anext(responses))
    killing = asyncio.create_task(kill(resuming))
    async with asyncio.timeout(60):
        while resuming.replicas.first.process_id is not None:
            if waiting.done():  # it had several
                waiting = asyncio.create_task(anext(responses))
            await asyncio.sleep(0)
    resuming.stop_request(request_id)
    await killing

    async def rest() -> None:
        await waiting
        async for _ in responses:
            pass

    with pytest.raises(RequestAborted):
        await rest()
    assert resuming.in_flight == 0
    assert len(await generated(resuming, tensors())) == 6


async def test_other_tokens_than_before_are_no_answer() -> None:
    replay = Replay()
    for token_id in (1, 3):
        replay.note({"output_ids": Tensor.of("INT32", (1, 1), [token_id])})

    async def again() -> AsyncGenerator[Mapping[str, Tensor], None]:
        for token_id in (1, 4):
            yield {"output_ids": Tensor.of("INT32", (1, 1), [token_id])}

    with pytest.raises(GenerationFailed, match="when run again, it generated different tokens"):
        await anext(replay.rest(again()))


async def test_a_worker_that_only_fails_has_not_worked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(restarts, "FIRST_DELAY", 0.0)
    client = ManagerWorker(EngineOptions("nowhere"), LIMITS, 1, 0, 0, (), partial(LocalProcess, ""))
    started = AsyncMock(return_value=True)
    assert await client.restarts.attempt(started)
    failed = ResponseMessage(1, {}, True, failure("1", StepFailed("poisoned")))
    client._deliver(Responses([failed]))
    assert await client.restarts.attempt(started) is None
    client._deliver(Responses([failed, ResponseMessage(2, {}, True)]))
    assert await client.restarts.attempt(started)


async def test_a_directory_that_cannot_be_loaded(tmp_path: Path) -> None:
    client = ManagerClient(EngineOptions(str(tmp_path)), NO_LIMITS, retry_threshold=1)
    with pytest.raises(ConfigurationError, match="there is no tokenizer"):
        await client.replicas.start()
    await client.replicas.stop()
