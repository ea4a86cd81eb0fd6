"""Backends of texts, served: their tokenizers, sequences and limits, and what becomes of them when a client leaves."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from lmi_core.backend import Backend
from lmi_core.errors import InvalidParameter
from lmi_core.generation.parameters import ExtendedParameters
from lmi_core.hookspecs import hookimpl
from lmi_core.text_backend.backend import MAX_LENGTH, TextBackend
from lmi_core.texts.word_tokenizer import WordTokenizer
from lmi_plugins.backends.scripted import CHAT_TEMPLATE
from tests.conftest import ModelDirectory, RunningServer, Serve

PROPERTIES = "option.rolling_batch=parrot\n"
HELLO = Path(__file__).parents[3] / "examples" / "hello"


class ParrotBackend(TextBackend[Any]):
    """A backend that repeats the prompt, word by word, and then waits if the prompt says so."""

    name = "parrot"
    parameters_type = ExtendedParameters

    async def start(self) -> None:
        self.waiting, self.goes_on, self.closed = threading.Event(), threading.Event(), threading.Event()

    def generate(self, prompt: str, parameters: Any) -> Any:
        if prompt.startswith("refuse"):
            raise InvalidParameter(f"`inputs` must be polite. Given: {prompt}")
        try:
            for word in prompt.split():
                if word == "wait":
                    self.waiting.set()
                    self.goes_on.wait(10)
                yield f"{word} "
        finally:
            self.closed.set()


class AsyncParrotBackend(ParrotBackend):
    async def generate(self, prompt: str, parameters: Any) -> AsyncIterator[str]:
        try:
            for word in prompt.split():
                if word == "wait":
                    self.waiting.set()
                    await asyncio.Event().wait()
                yield f"{word} "
        finally:
            self.closed.set()


class Plugin:
    def __init__(self, backend: type[Backend[Any]]) -> None:
        self.backend = backend

    @hookimpl
    def lmi_register_backends(self, register: Callable[[type[Backend[Any]]], None]) -> None:
        register(self.backend)


@pytest.fixture(params=[ParrotBackend, AsyncParrotBackend], ids=["thread", "event loop"])
async def server(request: pytest.FixtureRequest, serve: Serve, model_dir: ModelDirectory) -> RunningServer:
    return await serve(model_dir({"serving.properties": PROPERTIES}), plugins=[Plugin(request.param)])


def parrot(server: RunningServer) -> ParrotBackend:
    backend = server.model.backend
    assert isinstance(backend, ParrotBackend)
    return backend


async def test_details(server: RunningServer) -> None:
    parameters = {"details": True, "decoder_input_details": True, "max_new_tokens": 9}
    answer = (await server.post("/invocations", {"inputs": "one two", "parameters": parameters})).json()
    assert answer["generated_text"] == "one two "
    assert [(token["text"], token["log_prob"]) for token in answer["details"]["tokens"]] == [
        ("one", 0.0),
        (" two", 0.0),
        (" ", 0.0),
        ("", 0.0),
    ]
    assert answer["details"]["generated_tokens"] == 4
    assert [(token["text"], token["log_prob"]) for token in answer["details"]["prefill"]] == [
        ("one", None),
        (" two", 0.0),
    ]


async def test_sequences_and_top_tokens(server: RunningServer) -> None:
    payload = {"prompt": "one two", "max_tokens": 2, "n": 3, "logprobs": 1}
    answer = (await server.post("/v1/completions", payload)).json()
    assert [choice["text"] for choice in answer["choices"]] == ["one two"] * 3
    assert answer["usage"]["completion_tokens"] == 6
    assert answer["choices"][0]["logprobs"]["top_logprobs"] == [{"one": 0.0}, {" two": 0.0}]


async def test_log_probs_of_triton(server: RunningServer) -> None:
    payload = {"text_input": "one two", "max_tokens": 2, "return_log_probs": True, "exclude_input_in_output": True}
    answer = await server.post("/v2/models/model/generate", payload)
    assert (answer.status, answer.json()["text_output"], answer.json()["cum_log_probs"]) == (200, "one two", 0.0)


@pytest.mark.parametrize("waits", [True, False], ids=["while it waits", "between words"])
async def test_the_generator_is_closed_when_the_client_leaves(server: RunningServer, waits: bool) -> None:
    backend = parrot(server)
    payload = {"inputs": "one wait two", "parameters": {"max_new_tokens": 9}, "stream": True}
    async with server.client.post("/invocations", json=payload) as response:
        await response.content.readline()
        assert await asyncio.to_thread(backend.waiting.wait, 60)
        if not waits:
            backend.goes_on.set()
    backend.goes_on.set()  # a thread closes it once it yields
    assert await asyncio.to_thread(backend.closed.wait, 10)


async def test_the_generator_is_closed_at_a_stop_sequence(server: RunningServer) -> None:
    parameters = {"stop_sequences": ["two"], "max_new_tokens": 9}
    answer = await server.post("/invocations", {"inputs": "one two wait", "parameters": parameters})
    assert answer.json() == {"generated_text": "one "}
    assert await asyncio.to_thread(parrot(server).closed.wait, 10)
    assert not parrot(server).waiting.is_set()


async def test_several_at_once(server: RunningServer) -> None:
    backend = parrot(server)
    payload = {"inputs": "one wait two", "stream": True}
    async with server.client.post("/invocations", json=payload) as response:
        assert await asyncio.to_thread(backend.waiting.wait, 60)
        assert (await server.post("/invocations", {"inputs": "three"})).json() == {"generated_text": "three "}
        response.close()
    backend.goes_on.set()


async def test_no_more_at_once_than_the_option_says(serve: Serve, model_dir: ModelDirectory) -> None:
    directory = model_dir({"serving.properties": f"{PROPERTIES}option.max_rolling_batch_size=1\n"})
    server = await serve(directory, plugins=[Plugin(ParrotBackend)])
    backend = parrot(server)
    first = asyncio.ensure_future(server.post("/invocations", {"inputs": "one wait two"}))
    assert await asyncio.to_thread(backend.waiting.wait, 60)
    second = asyncio.ensure_future(server.post("/invocations", {"inputs": "three"}))
    _, pending = await asyncio.wait([first, second], timeout=0.05)
    assert pending == {first, second}
    backend.goes_on.set()
    assert [answer.json()["generated_text"] for answer in await asyncio.gather(first, second)] == [
        "one wait two ",
        "three ",
    ]


async def test_errors_of_the_author(serve: Serve, model_dir: ModelDirectory) -> None:
    server = await serve(model_dir({"serving.properties": PROPERTIES}), plugins=[Plugin(ParrotBackend)])
    answer = await server.post("/v1/completions", {"prompt": "refuse me"})
    # with the name that the client has for `inputs`
    assert (answer.status, answer.json()["error"]["message"]) == (400, "`prompt` must be polite. Given: refuse me")


class Numbers(ParrotBackend):
    def generate(self, prompt: str, parameters: Any) -> Iterator[Any]:
        yield "one"
        yield 2


async def test_items_of_another_type(serve: Serve, model_dir: ModelDirectory) -> None:
    server = await serve(model_dir({"serving.properties": PROPERTIES}), plugins=[Plugin(Numbers)])
    message = "the parrot backend (Numbers): `generate` must yield texts, each a str, and yielded int"
    whole = await server.post("/invocations", {"inputs": "one"})
    assert (whole.status, whole.json()["error"]) == (500, message)
    stream = await server.post("/invocations", {"inputs": "one", "stream": True})
    assert [line.get("error") for line in stream.json_lines()] == [None, message]


async def test_tokenizers(serve: Serve, model_dir: ModelDirectory) -> None:
    server = await serve(model_dir({"serving.properties": PROPERTIES}), plugins=[Plugin(ParrotBackend)])
    assert isinstance(server.model.backend.tokenizer, WordTokenizer)
    assert server.model.backend.tokenizer.chat_template(False) == CHAT_TEMPLATE
    assert server.model.backend.max_length == MAX_LENGTH


@pytest.mark.torch
async def test_the_tokenizer_of_the_model_s_files(serve: Serve, model_dir: ModelDirectory) -> None:
    directory = model_dir({"serving.properties": PROPERTIES})
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (directory / name).write_bytes((HELLO / name).read_bytes())
    server = await serve(directory, plugins=[Plugin(ParrotBackend)])
    tokenizer = server.model.backend.tokenizer
    text = "What is Deep Learning? Ünïcode 🙂 too."
    parameters = {"details": True, "max_new_tokens": 99}
    answer = (await server.post("/invocations", {"inputs": text, "parameters": parameters})).json()
    tokens = answer["details"]["tokens"]
    assert answer["generated_text"] == f"{text} "
    assert "".join(token["text"] for token in tokens) == f"{text} "
    assert tokens[-1] == {"id": tokenizer.eos_token_id, "text": "", "log_prob": 0.0}
    assert len(tokens) > len(text.split()) + 2
