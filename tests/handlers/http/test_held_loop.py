"""Requests that would hold the event loop, and with it all other requests."""

import io
import json
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from lmi_core.formatter import OutputFormatter
from lmi_core.generation.output import GenerationOutput
from lmi_handlers.chat.openai_formatters import OpenAiChatFormatter
from lmi_handlers.completions.formatters import OpenAiCompletionsFormatter
from lmi_handlers.happy_vllm.formatters import HappyVllmFormatter
from lmi_handlers.testing.servers import RunningServer, running_server
from lmi_plugins.backends.scripted import Script
from lmi_plugins.formatters.json import JsonFormatter
from tests.longest_hold import longest_hold

HELD = 0.2  # seconds of CPU time, of which the tests' own checks of answers take some
CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
MESSAGE, REPLY = {"role": "user", "content": "hi"}, {"role": "assistant", "content": "yes"}


def tools(count: int) -> list[dict[str, Any]]:
    schema = {"type": "object", "properties": {"a": {"type": "string"}}}
    return [{"type": "function", "function": {"name": f"f{i}", "parameters": schema}} for i in range(count)]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def server(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[RunningServer]:
    directory: Path = tmp_path_factory.mktemp("held") / "model"
    directory.mkdir()
    (directory / "serving.properties").write_text(
        "option.rolling_batch=scripted\noption.tool_call_parser=llama3_json\n"
    )
    async with running_server(directory) as running:
        # Imports and checks of the document, which the first request waits for.
        for path in (CHAT, COMPLETIONS, "/v1/messages/count_tokens", "/v1/responses/input_tokens"):
            await running.post(path, {})
        yield running


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize(
    ("path", "payload", "status", "message"),
    [
        (CHAT, {"messages": [MESSAGE] * 100_000}, 413, "at most 50000 objects, lists and members in its JSON"),
        (CHAT, {"messages": [MESSAGE], "tools": tools(20_000)}, 413, "(max_request_members)"),
        (COMPLETIONS, {"prompt": "a", "logit_bias": dict.fromkeys(map(str, range(100_000)), 1)}, 413, "members"),
        (COMPLETIONS, {"prompt": "a", **dict.fromkeys(map(str, range(100_000)))}, 413, "members"),
        (CHAT, {"messages": [MESSAGE] * 16_000}, 400, "2047 tokens long"),
        (CHAT, {"messages": [MESSAGE], "tools": tools(3000)}, 400, "2047 tokens long"),
        (
            "/v1/messages/count_tokens",
            {"model": "model", "messages": [MESSAGE, REPLY] * 7999 + [MESSAGE]},
            200,
            "31999",
        ),
        ("/v1/responses/input_tokens", {"input": [MESSAGE] * 15_000}, 200, "30001"),
        (COMPLETIONS, {"prompt": "a", **dict.fromkeys(map("k{}".format, range(40_000)), 1)}, 200, ""),
        (COMPLETIONS, {"prompt": ["a b " * 25_000] * 20}, 400, "2047 tokens long"),
        (COMPLETIONS, {"prompt": [1] * 1_000_000}, 400, "Given: 1000000"),
        (COMPLETIONS, {"prompt": "ab " * 1_500_000}, 400, "2047 tokens long"),
        (COMPLETIONS, {"prompt": "a", "stop": ["a" * 50_000] * 64}, 400, "`stop.0` must have at most 1024 characters"),
        (COMPLETIONS, {"prompt": "a", "bad_words": ["a" * 90_000] * 64}, 400, "must have at most 1024 characters"),
    ],
)
async def test_long_bodies(server: RunningServer, path: str, payload: Any, status: int, message: str) -> None:
    data = io.BytesIO(json.dumps(payload).encode())
    with longest_hold() as hold:
        async with server.client.post(path, data=data, headers={"Content-Type": "application/json"}) as response:
            text = await response.text()
    assert (response.status, message in text) == (status, True), text[:300]
    assert hold.seconds < HELD, hold.callback


@pytest.mark.asyncio(loop_scope="module")
async def test_text_that_looks_like_members_is_text(server: RunningServer) -> None:
    code = "{[:" * 30_000
    answer = await server.post(CHAT, {"messages": [{"role": "user", "content": code}], "max_tokens": 2})
    assert answer.status == 200, answer.body[:300]


TEXT = " ".join(f"w{i % 50}" for i in range(1900))
DETAILS = {"details": True, "logprobs": 20, "max_new_tokens": 1900}


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize(
    ("path", "payload", "formatter"),
    [
        (CHAT, {"messages": [MESSAGE], "n": 2, "logprobs": True, "top_logprobs": 20}, OpenAiChatFormatter),
        (COMPLETIONS, {"prompt": "a", "n": 2, "max_tokens": 1900, "logprobs": 20}, OpenAiCompletionsFormatter),
        ("/v1/generate", {"prompt": "a", "n": 2, "max_tokens": 1900, "logprobs": 20}, HappyVllmFormatter),
        ("/invocations", {"inputs": "a", "parameters": DETAILS}, JsonFormatter),
        (CHAT, {"messages": [MESSAGE], "tools": tools(1), "n": 4}, OpenAiChatFormatter),
    ],
)
async def test_long_answers_are_written_beside_the_loop(
    server: RunningServer,
    monkeypatch: pytest.MonkeyPatch,
    path: str,
    payload: Any,
    formatter: type[OutputFormatter],
) -> None:
    threads, write = list[str](), formatter.format

    def written(self: OutputFormatter, output: GenerationOutput) -> bytes | list[bytes]:
        data = write(self, output)
        if data:
            threads.append(threading.current_thread().name)
        return data

    monkeypatch.setattr(formatter, "format", written)
    server.scripted.enqueue(Script(TEXT))
    answer = await server.post(path, payload)
    assert (answer.status, len(answer.body) > len(TEXT)) == (200, True)
    assert [name.partition("_")[0] for name in threads] == ["lmi-writing"]


@pytest.mark.asyncio(loop_scope="module")
async def test_text_that_is_searched_for_calls(server: RunningServer) -> None:
    server.scripted.enqueue(Script(tokens=["[" * 50_000]))
    with longest_hold() as hold:
        answer = await server.post(CHAT, {"messages": [MESSAGE], "tools": tools(1)})
    assert answer.status == 200
    assert hold.seconds < HELD, hold.callback
