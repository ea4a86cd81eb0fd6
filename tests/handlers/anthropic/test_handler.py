"""Messages over the wire: what requests may hold, and what answers do."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

import pytest

from lmi_core.generation.output import GenerationStep
from lmi_core.generation.request import ValidRequest
from lmi_plugins.backends.scripted import Script, ScriptedBackend
from tests.conftest import SCRIPTED, RunningServer, parameters
from tests.handlers.anthropic.asking import COUNT, TEXT, WORDS, ask, events, message, read_events
from tests.module_server import module_server

pytestmark = pytest.mark.asyncio(loop_scope="module")

USAGE = {"input_tokens": 3, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 0, "output_tokens": 7}


server = module_server(SCRIPTED)


async def test_whole_message(server: RunningServer) -> None:
    answer = await ask(server, headers={"x-request-id": "one"})
    assert answer.json() == {
        "id": "msg_one",
        "type": "message",
        "role": "assistant",
        "model": "model",
        "content": [{"type": "text", "text": TEXT}],
        "stop_reason": "end_turn",
        "stop_sequence": None,
        "stop_details": None,
        "usage": USAGE,
    }
    assert (answer.headers["request-id"], answer.headers["x-request-id"]) == ("one", "one")
    assert server.scripted.history[-1].prompt == "user: Hi\nassistant:"


async def test_tokens_of_the_prefix_cache(server: RunningServer, monkeypatch: pytest.MonkeyPatch) -> None:
    generate = ScriptedBackend.generate

    async def cached(self: ScriptedBackend, request: ValidRequest) -> AsyncGenerator[GenerationStep, None]:
        async with aclosing(generate(self, request)) as steps:
            async for step in steps:
                step.cached_tokens = 2
                yield step

    monkeypatch.setattr(ScriptedBackend, "generate", cached)
    assert (await ask(server)).json()["usage"] == USAGE | {"input_tokens": 1, "cache_read_input_tokens": 2}


async def test_stream(server: RunningServer) -> None:
    start, ping, begun, *deltas, ended, last, stop = await events(server)
    assert start["message"] | {"id": ""} == {
        "id": "",
        "type": "message",
        "role": "assistant",
        "model": "model",
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "stop_details": None,
        "usage": USAGE | {"output_tokens": 1},
    }
    assert ping == {"type": "ping"}
    assert begun == {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}
    assert deltas == [
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": word}} for word in WORDS
    ]
    assert ended == {"type": "content_block_stop", "index": 0}
    assert last == {
        "type": "message_delta",
        "delta": {"stop_reason": "end_turn", "stop_sequence": None, "stop_details": None},
        "usage": USAGE,
    }
    assert stop == {"type": "message_stop"}


async def both(server: RunningServer, script: Script | None = None, **fields: Any) -> tuple[Any, Any]:
    """Return how a whole message and a stream end, which must be the same."""
    if script is not None:
        server.scripted.enqueue(script, Script(script.text))
    whole = await message(server, **fields)
    streamed = (await events(server, **fields))[-2]["delta"]
    assert streamed == {name: whole[name] for name in ("stop_reason", "stop_sequence", "stop_details")}
    return whole["stop_reason"], whole["stop_sequence"]


async def test_why_messages_end(server: RunningServer) -> None:
    assert await both(server, max_tokens=2) == ("max_tokens", None)
    assert await both(server, stop_sequences=["zzz", " is a", "Learning is"]) == ("stop_sequence", "Learning is")
    assert await both(server, stop=" is a") == ("stop_sequence", " is a")
    assert await both(server, stop_sequences=["ing is"], include_stop_str_in_output=True) == ("stop_sequence", "ing is")
    assert (await message(server, stop_sequences=[" is a"]))["content"] == [{"type": "text", "text": "Deep Learning"}]


async def test_context_that_ends_the_message(server: RunningServer) -> None:
    """`max_tokens` may be more than the context has room for, as with Anthropic's newer models."""
    limit = server.scripted.max_length
    server.scripted.max_length = 6
    try:
        assert await both(server, max_tokens=1000) == ("model_context_window_exceeded", None)
        assert await both(server, max_tokens=3) == ("max_tokens", None)
        answer = await ask(server, messages=[{"role": "user", "content": "word " * 20}])
    finally:
        server.scripted.max_length = limit
    assert answer.status == 400
    assert answer.json()["error"]["message"].startswith("prompt is too long: 22 tokens > 5 maximum. `messages` must be")


async def test_empty_message_has_an_empty_text(server: RunningServer) -> None:
    fields: dict[str, Any] = {"stop_sequences": ["Deep"]}
    assert (await message(server, **fields))["content"] == [{"type": "text", "text": ""}]
    assert [event["type"] for event in await events(server, **fields)] == [
        "message_start",
        "ping",
        "content_block_start",
        "content_block_stop",
        "message_delta",
        "message_stop",
    ]


async def test_sampling(server: RunningServer) -> None:
    await message(
        server, temperature=0.5, top_p=0.9, top_k=40, stop_sequences=["\n"], min_p=0.1, seed=7, repetition_penalty=1.1
    )
    found = parameters(server)
    assert (found.temperature, found.top_p, found.top_k, found.stop_sequences) == (0.5, 0.9, 40, ["\n"])
    assert (found.min_p, found.seed, found.repetition_penalty, found.do_sample) == (0.1, 7, 1.1, True)
    await message(server, temperature=0)
    assert not parameters(server).do_sample


async def test_what_clients_send_beside(server: RunningServer) -> None:
    """Fields that Claude Code and LiteLLM send are accepted."""
    headers = {
        "anthropic-version": "2023-06-01",
        "anthropic-beta": "interleaved-thinking-2025-05-14,context-management-2025-06-27",
        "x-api-key": "any",
    }
    answer = await ask(
        server,
        "/v1/messages?beta=true",
        headers,
        max_tokens=2000,
        system=[
            {"type": "text", "text": "x-anthropic-billing-header: cc_version=2; cch=a1b2;"},
            {"type": "text", "text": "You are a coding agent.", "cache_control": {"type": "ephemeral"}},
        ],
        messages=[
            {"role": "user", "content": [{"type": "text", "text": "Hi", "cache_control": {"type": "ephemeral"}}]}
        ],
        metadata={"user_id": "me"},
        thinking={"type": "enabled", "budget_tokens": 1024},
        context_management={"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]},
        service_tier="auto",
        cache_control={"type": "ephemeral"},
        unknown=1,
    )
    assert answer.status == 200
    ignored = "context_management, unknown, thinking.budget_tokens"
    assert answer.headers["X-Lmi-Ignored-Parameters"] == ignored
    assert server.scripted.history[-1].prompt == "system: You are a coding agent.\nuser: Hi\nassistant:"


async def test_user_in_the_log(server: RunningServer, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("INFO", "lmi_handlers"):
        await ask(server, headers={"x-request-id": "mine"}, metadata={"user_id": "somebody"})
    assert "request mine was sent by user 'somebody'" in caplog.messages


@pytest.mark.parametrize("stream", [False, True])
async def test_aborted_request(server: RunningServer, stream: bool) -> None:
    """No `stop_reason` means that, so that it is an error."""
    script = Script("one two", hold=True)
    server.scripted.enqueue(script)
    asked = asyncio.create_task(ask(server, headers={"x-request-id": "story"}, stream=stream))
    await script.started.wait()
    assert (await server.post("/v1/abort_request", {"request_id": "story"})).status == 200
    answer = await asked
    assert answer.status == (200 if stream else 499)
    content = read_events(answer.body)[-1] if stream else answer.json()
    assert content == {
        "type": "error",
        "error": {"type": "api_error", "message": "the request was aborted"},
        "request_id": "story",
    }


async def test_failure_within_a_stream(server: RunningServer) -> None:
    server.scripted.enqueue(Script("one two", error="no memory"))
    *_, last = await events(server)
    assert (last["type"], last["error"]) == ("error", {"type": "api_error", "message": "no memory"})


async def test_count_tokens(server: RunningServer) -> None:
    async def count(**fields: Any) -> int:
        answer = await ask(server, COUNT, max_tokens=..., **fields)
        assert answer.status == 200, answer.body
        found = answer.json()
        assert found["context_management"] == {"original_input_tokens": found["input_tokens"]}
        return int(found["input_tokens"])

    before = len(server.scripted.history)
    assert await count() == 3
    assert await count(system="You are a helpful assistant with a very long system prompt.") == 15
    assert await count(messages=[{"role": "user", "content": "word " * 3000}]) == 3002  # more than the context
    assert len(server.scripted.history) == before
    assert (await message(server))["usage"]["input_tokens"] == 3
    ignored = await ask(server, COUNT, unknown=1, context_management={})
    assert ignored.headers["X-Lmi-Ignored-Parameters"] == "unknown, context_management"


async def test_full_body_of_a_message_may_be_counted(server: RunningServer) -> None:
    answer = await ask(server, COUNT, stream=True, temperature=0.5, stop_sequences=["a"], metadata={"user_id": "me"})
    assert answer.json()["input_tokens"] == 3
