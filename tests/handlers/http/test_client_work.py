"""Clients' requests do not run in the default executor, where the server reloads keys and restarts engines."""

import asyncio
import json
import threading
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from lmi_core.host.off_loop import LONG_TEXT
from tests.conftest import SCRIPTED, ModelDirectory, RunningServer, Serve

LIMIT = 60.0
MESSAGES = [{"role": "user", "content": "hi"}]
WORDS = "one two. " * (LONG_TEXT // 9 + 1)
LONG_MESSAGES = [{"role": "user", "content": WORDS}]
BODIES = [
    ("/v1/split_text", {"text": "one two."}),
    ("/v1/split_text", {"text": WORDS}),
    ("/v1/metadata_text", {"text": "one two."}),
    ("/v1/metadata_text", {"text": WORDS}),
    ("/v2/tokenizer", {"prompt": WORDS, "return_token_strs": True}),
    ("/tokenize", {"messages": LONG_MESSAGES}),
    ("/detokenize", {"tokens": [1] * LONG_TEXT}),
    ("/v1/messages/count_tokens", {"model": "model", "messages": MESSAGES}),
    ("/v1/messages/count_tokens", {"model": "model", "messages": LONG_MESSAGES}),
    ("/v1/responses/input_tokens", {"input": MESSAGES}),
    ("/v1/responses/input_tokens", {"input": LONG_MESSAGES, "truncation": "auto"}),
    ("/v1/responses", {"input": LONG_MESSAGES, "truncation": "auto"}),
    ("/v1/chat/completions", {"messages": LONG_MESSAGES, "truncate_prompt_tokens": 5}),
    ("/invocations", {"inputs": WORDS, "parameters": {"truncate": 5, "max_new_tokens": 1}}),
]


@pytest.fixture
async def server(serve: Serve, model_dir: ModelDirectory) -> AsyncIterator[RunningServer]:
    """A server whose default executor is busy."""
    server = await serve(model_dir({"serving.properties": SCRIPTED}))
    for path, _ in BODIES:
        await server.post(path, {})  # imports
    loop, release = asyncio.get_running_loop(), threading.Event()
    loop.set_default_executor(busy := ThreadPoolExecutor(1))
    held = busy.submit(release.wait)
    yield server
    release.set()
    held.result()


async def test_no_request_waits_for_the_default_executor(server: RunningServer) -> None:
    for path, body in BODIES:
        answer = await asyncio.wait_for(server.post(path, body), LIMIT)
        assert answer.status in (200, 400), (path, answer.body)
    assert (await asyncio.wait_for(server.get("/openapi.json"), LIMIT)).status == 200


async def test_long_texts_have_the_same_tokens(server: RunningServer) -> None:
    body = json.loads((await server.post("/tokenize", {"prompt": WORDS, "return_token_strs": True})).body)
    assert "".join(body["token_strs"]) == WORDS
    assert body["tokens"] == server.scripted.tokenizer.encode(WORDS)
    assert body["count"] == len(body["tokens"])
    chunks = (await server.post("/v1/split_text", {"text": WORDS, "num_tokens_in_chunk": 3})).json()["split_text"]
    assert chunks[:2] == ["one two. one two.", " one two. one two."]
    assert "".join(chunks) == WORDS
