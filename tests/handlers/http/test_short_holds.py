"""No request holds the event loop for longer than 20 ms, measured in CPU time of the loop's own thread."""

import io
import json
import time
from typing import Any

import pytest

from lmi_handlers.anthropic.messages import chat_messages
from lmi_handlers.anthropic.payload import CountTokensRequest
from lmi_handlers.testing.servers import RunningServer
from lmi_plugins.backends.scripted import Script
from tests.documented_answers import AnswerChecks
from tests.longest_hold import longest_hold
from tests.module_server import module_server

HELD = 0.03  # seconds; half as much again, as processors that others share take longer
ATTEMPTS = 8  # the first one imports what it needs; on a busy machine, to give memory back is CPU time too
CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
MESSAGE = {"role": "user", "content": "hi"}
TOOL = {"type": "function", "function": {"name": "f0", "parameters": {"type": "object"}}}
PROMPTS = {"prompt": ["a b c"] * 1024, "max_tokens": 5}
LONG = 72_000_000  # bytes of an answer
WORDS = Script(tokens=["x" * (LONG // 1800)] * 1800)
TEXT = " ".join(f"w{i % 50}" for i in range(500))
NESTED = Script(tokens=['{"name":"f0","parameters":', *['{"a":' * 20] * 1900])


server = module_server("option.rolling_batch=scripted\noption.tool_call_parser=llama3_json\njob_queue_size=4000\n")


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize(
    ("path", "payload", "script", "size"),
    [
        (COMPLETIONS, PROMPTS, None, 90_000),
        (COMPLETIONS, PROMPTS | {"stream": True}, None, 1_000_000),
        (COMPLETIONS, {"prompt": "a", "n": 64, "max_tokens": 500, "logprobs": 5}, Script(TEXT), 2_000_000),
        (COMPLETIONS, {"prompt": "a", "max_tokens": 1900}, WORDS, LONG),
        (CHAT, {"messages": [MESSAGE], "max_tokens": 1900}, WORDS, LONG),
        ("/invocations", {"inputs": "a", "parameters": {"max_new_tokens": 1900}}, WORDS, LONG),
        ("/v1/messages", {"messages": [MESSAGE], "max_tokens": 1900}, WORDS, LONG),
        (COMPLETIONS, {"prompt": "a", "max_tokens": 1900, "stream": True}, WORDS, LONG),
        (CHAT, {"messages": [MESSAGE], "tools": [TOOL]}, Script(tokens=["[" * 100_000]), 100_000),
        (CHAT, {"messages": [MESSAGE], "tools": [TOOL], "stream": True}, Script(tokens=["[" * 100_000]), 100_000),
        (CHAT, {"messages": [MESSAGE], "tools": [TOOL], "stream": True, "max_tokens": 1901}, NESTED, 190_000),
        ("/detokenize", {"tokens": [0] * 1_000_000}, None, 1_000_000),
        ("/tokenize", {"prompt": "ab " * 500_000}, None, 1_000_000),
        ("/v1/split_text", {"text": "ab. " * 100_000, "num_tokens_in_chunk": 20}, None, 400_000),
    ],
)
async def test_no_callback_is_long(
    server: RunningServer, monkeypatch: pytest.MonkeyPatch, path: str, payload: Any, script: Script | None, size: int
) -> None:
    monkeypatch.setattr(AnswerChecks, "_check", lambda *answer: None)  # which takes longer than to answer
    data = json.dumps(payload).encode()
    holds, received, status = list[tuple[float, str]](), 0, 0
    while len(holds) < ATTEMPTS and (not holds or holds[-1][0] >= HELD):
        if script is not None:
            server.scripted.enqueue(script)
        body, received = io.BytesIO(data), 0
        with longest_hold() as hold:
            async with server.client.post(path, data=body, headers={"Content-Type": "application/json"}) as response:
                status = response.status
                async for piece in response.content.iter_any():
                    received += len(piece)
        holds.append((hold.seconds, hold.callback))
    assert (status, received >= size) == (200, True), received
    assert holds[-1][0] < HELD, holds


def test_messages_of_one_role_are_joined_in_linear_time() -> None:
    payload = CountTokensRequest.model_validate({"messages": [MESSAGE] * 15_000})
    begun = time.thread_time()
    (message,) = chat_messages(payload)
    assert len(message.content or ()) == 15_000
    assert time.thread_time() - begun < 5  # to join them one by one took a minute
