"""Requests for several sequences: what they count in the limits of their key, and what they leave to other keys."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack
from types import SimpleNamespace
from typing import Any

import grpc
import pytest

from lmi_handlers.access import key_usage
from lmi_handlers.access.api_keys import ApiKeys
from lmi_handlers.access.credentials import Secret
from lmi_handlers.access.options import AccessOptions
from lmi_handlers.testing import running_server
from lmi_plugins.backends.scripted import Script, ScriptedBackend
from tests.conftest import SCRIPTED, Answer, ModelDirectory, RunningServer
from tests.handlers.kserve_grpc.asking import infer_request, stub_of
from tests.handlers.lmi.test_dynamic import DISABLE, AutoPlugin
from tests.loop_clock import until

SECONDS = 100
COMPLETIONS = "/v1/completions"
CHAT: dict[str, Any] = {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 2}
LIMITED = {"one": 1, "two": 2, "three": 3}
KEYS = [
    *(f"{name} sk-{name}" for name in ("greedy", "ann", "bob", "eve")),
    *(f"{name} sk-{name} max_concurrent_requests={most}" for name, most in LIMITED.items()),
    "rate sk-rate requests_per_minute=5",
]
FORTY = "job_queue_size=40\noption.max_rolling_batch_size=4\n"
TENSORS = [
    {"name": "text_input", "shape": [1, 1], "datatype": "BYTES", "data": ["a"]},
    {"name": "n", "shape": [1, 1], "datatype": "INT32", "data": [3]},
]
THREE: list[tuple[str, dict[str, Any]]] = [
    (COMPLETIONS, {"prompt": ["a", "b", "c"]}),
    (COMPLETIONS, {"prompt": "a", "n": 3}),
    (COMPLETIONS, {"prompt": "a", "best_of": 3}),
    (COMPLETIONS, {"prompt": "a", "n": 3, "use_beam_search": True}),
    (COMPLETIONS, {"prompt": "a", "n": 3, "stream": True}),
    ("/v1/chat/completions", CHAT | {"n": 3}),
    ("/invocations", {"inputs": "a", "parameters": {"num_beams": 3}}),
    ("/invocations", {"inputs": "a", "parameters": {"n": "3"}}),
    ("/predictions/model", CHAT | {"n": 3}),
    ("/endpoints/any/invocations", {"inputs": "a", "parameters": {"n": 3.0}}),
    ("/generate", {"inputs": "a", "parameters": {"best_of": 3, "do_sample": True}}),
    ("/v1/generate", {"prompt": "a", "n": 3}),
    ("/v1/generate", {"prompt": "a", "best_of": 3, "use_beam_search": True}),
    ("/v2/models/model/generate", {"text_input": "a", "beam_width": 3}),
    ("/v2/models/model/infer", {"inputs": TENSORS}),
]
GRPC = infer_request(
    ("text_input", "BYTES", [1, 1], {"bytes_contents": [b"a"]}), ("n", "INT32", [1, 1], {"int_contents": [3]})
)


@pytest.fixture
async def server(model_dir: ModelDirectory) -> AsyncIterator[RunningServer]:
    access = AccessOptions(api_keys=ApiKeys(KEYS), management_token=Secret.of("token"))
    directory = model_dir({"serving.properties": SCRIPTED + FORTY})
    async with asyncio.timeout(SECONDS), running_server(directory, grpc=True, access=access) as running:
        yield running


def of(key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer sk-{key}"}


async def post(server: RunningServer, key: str, body: Mapping[str, Any], path: str = COMPLETIONS) -> Answer:
    return await server.post(path, dict(body), headers=of(key))


async def message(server: RunningServer, key: str, prompts: int, status: int) -> str:
    """Return the message of the error for so many prompts of a key."""
    answer = await post(server, key, {"prompt": ["a"] * prompts})
    assert answer.status == status, answer.body
    return str(answer.json()["error"]["message"])


async def until_taken(server: RunningServer, count: int) -> None:
    while server.model.admission.taken != count:
        await asyncio.sleep(0.01)


async def body_that_does_not_end() -> AsyncIterator[bytes]:
    yield b"{"
    await asyncio.Event().wait()


def num_prompts(path: str, body: dict[str, Any]) -> int:
    prompts = "" if path.endswith("infer") else body.get("prompt", body.get("inputs"))
    return len(prompts) if isinstance(prompts, list) else 1


async def hold(
    stack: AsyncExitStack, server: RunningServer, key: str, body: dict[str, Any], path: str = COMPLETIONS
) -> asyncio.Task[Answer]:
    """Return a request whose prompts are held until its client leaves."""
    scripts = [Script("one", hold=True) for _ in range(num_prompts(path, body))]
    server.scripted.enqueue(*scripts)
    request = asyncio.create_task(post(server, key, body, path))
    stack.callback(request.cancel)
    await scripts[0].started.wait()
    return request


async def test_one_request_does_not_shut_out_other_keys(server: RunningServer) -> None:
    assert await message(server, "one", 44, 400) == (
        "`prompt` must ask for at most 1 sequences at once, as many as the max_concurrent_requests of the API key one. "
        "Given: 44"
    )
    assert await message(server, "greedy", 44, 400) == (
        "`prompt` must ask for at most 40 sequences at once, as many as have a place in the model's queue "
        "(job_queue_size, option.max_rolling_batch_size) beside the 4 places reserved for other keys. Given: 44"
    )
    async with AsyncExitStack() as stack:
        held = await hold(stack, server, "greedy", {"prompt": ["a"] * 40})
        waiting = []
        for key, prompts, taken in (("ann", 2, 42), ("bob", 1, 43), ("eve", 1, 44)):
            waiting.append(asyncio.create_task(post(server, key, {"prompt": ["a"] * prompts})))
            await until_taken(server, taken)
        assert not any(request.done() for request in waiting)
        held.cancel()
        assert isinstance(server.scripted, ScriptedBackend)
        server.scripted._scripts.clear()  # of the prompts that were still waiting
        assert {(await request).status for request in waiting} == {200}
    await until_taken(server, 0)


async def test_one_key_leaves_queued_tokens_to_others(model_dir: ModelDirectory) -> None:
    bound = "option.max_num_queued_tokens=20\n"
    directory = model_dir({"serving.properties": SCRIPTED + FORTY + bound})
    async with (
        running_server(directory, access=AccessOptions(api_keys=ApiKeys(KEYS))) as server,
        AsyncExitStack() as stack,
    ):
        assert isinstance(server.scripted, ScriptedBackend)

        async def hold_words(key: str, count: int) -> None:
            server.scripted.enqueue(Script(prefilled=asyncio.Event()))
            begun = len(server.scripted.history)
            request = asyncio.create_task(post(server, key, {"prompt": "word " * (count - 1) + "word"}))
            stack.callback(request.cancel)
            await until(lambda: len(server.scripted.history) > begun)

        await hold_words("greedy", 30)  # nothing else waits, so it is taken
        await hold_words("ann", 1)
        for key in ("greedy", "ann"):
            assert "have more than option.max_num_queued_tokens=20 beside the" in await message(server, key, 1, 503)
        assert (await post(server, "bob", {"prompt": "word"})).status == 200


async def test_messages_say_which_bound_was_met(server: RunningServer) -> None:
    async with AsyncExitStack() as stack:
        await hold(stack, server, "greedy", {"prompt": ["a"] * 39})
        assert await message(server, "greedy", 2, 503) == (
            "this key has 40 of the 44 places in the queue of model model: 1 more would leave fewer than the 4 "
            "reserved for other keys"
        )
        assert await message(server, "greedy", 6, 503) == (
            "model model has 39 other requests in its queue, which has no room for the 6 sequences of this one"
        )
        last = asyncio.create_task(post(server, "greedy", {"prompt": "a"}))
        await until_taken(server, 40)
        assert "this key has 40 of the 44 places" in await message(server, "greedy", 1, 503)
        async with server.client.post(COMPLETIONS, data=body_that_does_not_end(), headers=of("greedy")) as unread:
            assert (unread.status, unread.headers["Retry-After"]) == (503, "1")
        assert "this key has 1 of the 44 places" in await message(server, "ann", 3, 503)
        others = [asyncio.create_task(post(server, key, {"prompt": "a"})) for key in ("ann", "ann", "bob", "eve")]
        await until_taken(server, 44)
        assert await message(server, "two", 1, 503) == "model model has 44 requests in its queue, which is full"
        for request in (last, *others):
            request.cancel()
        await asyncio.gather(last, *others, return_exceptions=True)


@pytest.mark.parametrize(("keys", "key"), [(["sk-only"], "sk-only"), (["a sk-a", "b sk-b"], "token")])
async def test_whoever_shares_the_queue_with_no_key_has_all_places(
    model_dir: ModelDirectory, keys: list[str], key: str
) -> None:
    access = AccessOptions(api_keys=ApiKeys(keys), management_token=Secret.of("token"))
    directory = model_dir({"serving.properties": SCRIPTED + FORTY})
    async with asyncio.timeout(SECONDS), running_server(directory, access=access) as server:
        body = {"prompt": ["a"] * 44}
        assert (await server.post(COMPLETIONS, body, headers={"x-api-key": key})).status == 200


@pytest.mark.parametrize(("path", "body"), THREE)
async def test_each_sequence_counts_until_its_request_ends(
    server: RunningServer, path: str, body: dict[str, Any]
) -> None:
    refused = await post(server, "two", body, path)
    assert 400 <= refused.status < 429
    text = refused.body.decode()
    assert "must ask for at most 2 sequences at once, as many as the max_concurrent_requests of the API key" in text
    assert "Given: 3" in text
    assert not server.scripted.history
    async with AsyncExitStack() as stack:
        await hold(stack, server, "three", body, path)
        assert server.model.admission.taken == 3
        late = await post(server, "three", {"prompt": "a"})
        assert (late.status, late.headers["Retry-After"]) == (429, "1")
    await until_taken(server, 0)
    invalid = {**body, "temperature": -1, "parameters": {**body.get("parameters", {}), "temperature": -1}}
    assert 400 <= (await post(server, "three", invalid, path)).status < 429
    server.scripted.enqueue(*[Script("one", error="broken")] * num_prompts(path, body))
    assert b"broken" in (await post(server, "three", body, path)).body
    assert (await post(server, "three", body, path)).status == 200


async def test_sequences_over_grpc(server: RunningServer) -> None:
    async with stub_of(server) as stub:

        async def refusal(key: str) -> grpc.aio.AioRpcError:
            with pytest.raises(grpc.aio.AioRpcError) as raised:
                await stub.ModelInfer(GRPC, metadata=[("authorization", f"Bearer sk-{key}")])
            return raised.value

        never = await refusal("two")
        assert never.code() is grpc.StatusCode.INVALID_ARGUMENT
        assert "at most 2 sequences at once" in str(never.details())
        server.scripted.enqueue(held := Script("one", hold=True))
        running = stub.ModelInfer(GRPC, metadata=[("authorization", "Bearer sk-three")])
        await held.started.wait()
        assert server.model.admission.taken == 3
        assert (await refusal("three")).code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        running.cancel()
        await until_taken(server, 0)
        assert await stub.ModelInfer(GRPC, metadata=[("authorization", "Bearer sk-three")])


async def test_a_key_leaves_places_to_others_over_grpc_too(server: RunningServer) -> None:
    async with AsyncExitStack() as stack:
        await hold(stack, server, "greedy", {"prompt": ["a"] * 39})
        stub = await stack.enter_async_context(stub_of(server))
        with pytest.raises(grpc.aio.AioRpcError) as raised:
            await stub.ModelInfer(GRPC, metadata=[("authorization", "Bearer sk-greedy")], timeout=30)
        assert raised.value.code() is grpc.StatusCode.UNAVAILABLE
        assert "this key has 40 of the 44 places in the queue of model model: 2 more" in str(raised.value.details())


async def test_one_that_would_fit_later(server: RunningServer) -> None:
    async with AsyncExitStack() as stack:
        await hold(stack, server, "three", {"prompt": ["a", "b"]})
        answer = await post(server, "three", {"prompt": ["a", "b"]})
        assert (answer.status, answer.headers["Retry-After"]) == (429, "1")
        assert answer.json()["error"]["message"] == (
            "the API key three may have 3 requests at the same time, and the sequences of this one count as 2: try "
            "again when one has ended"
        )
        assert (await post(server, "three", {"prompt": "a"})).status == 200


async def test_sequences_per_minute(server: RunningServer, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = SimpleNamespace(monotonic=lambda: 0.0)
    monkeypatch.setattr(key_usage, "time", clock)
    assert "at most 5 sequences at once, as many as the requests_per_minute of" in await message(server, "rate", 6, 400)
    taken = await post(server, "rate", {"prompt": ["a", "b", "c"]})
    assert (taken.status, taken.headers["x-ratelimit-remaining-requests"]) == (200, "1")
    late = await post(server, "rate", {"prompt": ["a", "b", "c", "d"]})
    assert (late.status, late.headers["Retry-After"]) == (429, "48")
    assert late.json()["error"]["message"] == (
        "the API key rate may start 5 requests per minute, and the sequences of this one count as 4: try again in 48.0 "
        "seconds"
    )
    clock.monotonic = lambda: 48.0
    taken = await post(server, "rate", {"prompt": ["a", "b", "c", "d"]})
    assert (taken.status, taken.headers["x-ratelimit-remaining-requests"]) == (200, "0")


async def test_sequences_in_dynamic_batches(model_dir: ModelDirectory) -> None:
    directory = model_dir({"serving.properties": f"{DISABLE}batch_size=2\nmax_batch_delay=1\n"})
    access, body = AccessOptions(api_keys=ApiKeys(KEYS)), {"inputs": ["a", "b", "c"]}
    async with asyncio.timeout(SECONDS), running_server(directory, [AutoPlugin()], access=access) as server:
        async with AsyncExitStack() as stack:
            await hold(stack, server, "three", body, "/invocations")
            assert server.model.admission.taken == 3
            assert (await post(server, "three", {"prompt": "a"})).status == 429
        await until_taken(server, 0)
        assert (await post(server, "three", body, "/invocations")).status == 200


async def test_inputs_of_embeddings_count_as_one_request(model_dir: ModelDirectory) -> None:
    directory = model_dir({"serving.properties": f"{SCRIPTED}option.task=text-embedding\n"})
    access = AccessOptions(api_keys=ApiKeys(KEYS))
    async with asyncio.timeout(SECONDS), running_server(directory, access=access) as server:
        server.scripted.enqueue(held := Script(hold=True))
        body = {"input": ["a", "b", "c"]}
        request = asyncio.create_task(post(server, "one", body, "/v1/embeddings"))
        await held.started.wait()
        assert server.model.admission.taken == 1
        assert (await post(server, "one", body, "/v1/embeddings")).status == 429
        request.cancel()
        await until_taken(server, 0)
        assert (await post(server, "one", body, "/v1/embeddings")).status == 200


async def test_requests_that_the_server_refuses_do_not_count(
    server: RunningServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(key_usage, "time", SimpleNamespace(monotonic=lambda: 0.0))
    admission = server.model.admission
    remaining = "x-ratelimit-remaining-requests"
    for taken, prompt in ((admission.maximum, "a"), (admission.maximum - 2, ["a", "b", "c"])):
        with monkeypatch.context() as full:
            full.setattr(admission, "taken", taken)
            refused = await post(server, "rate", {"prompt": prompt})
        assert (refused.status, refused.headers[remaining]) == (503, "5")
    with monkeypatch.context() as ending:
        ending.setattr(server.dispatcher, "draining", True)
        refused = await post(server, "rate", {"prompt": "a"})
    assert (refused.status, refused.headers[remaining]) == (503, "5")
    invalid = await post(server, "rate", {"prompt": "a", "temperature": -1})
    assert (invalid.status, invalid.headers[remaining]) == (400, "4")
