"""Ollama's `options`, on both routes."""

from typing import Any

import pytest

from tests.conftest import SCRIPTED, Answer, ModelDirectory, RunningServer, Serve, parameters
from tests.handlers.ollama.asking import WHOLE, chat, generate

HEADER = "X-Lmi-Ignored-Parameters"
UP_TO_THE_CONTEXT = 2048  # less the prompt


@pytest.fixture
async def server(serve: Serve, model_dir: ModelDirectory) -> RunningServer:
    return await serve(model_dir({"serving.properties": SCRIPTED}))


async def ask(server: RunningServer, options: dict[str, Any]) -> Answer:
    """Answer, which both routes do with the same parameters."""
    await chat(server, options=options, **WHOLE)
    first = parameters(server)
    answer = await generate(server, options=options, **WHOLE)
    assert first == parameters(server)
    assert answer.status == 200, answer.body
    return answer


async def test_defaults_are_ollamas(server: RunningServer) -> None:
    await ask(server, {})
    given = parameters(server)
    assert (given.do_sample, given.temperature, given.top_k, given.top_p) == (True, 0.8, 40, 0.9)
    assert (given.repetition_penalty, given.seed, given.min_p) == (1.0, None, 0.0)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"temperature": 0}, {"do_sample": False}),
        ({"temperature": 1.5}, {"do_sample": True, "temperature": 1.5}),
        ({"top_k": 0, "top_p": 1, "min_p": 0.1}, {"top_k": 0, "top_p": 1.0, "min_p": 0.1}),
        ({"typical_p": 0.7}, {"typical_p": 0.7}),
        ({"repeat_penalty": 1.2}, {"repetition_penalty": 1.2}),
        ({"presence_penalty": 1.5, "frequency_penalty": 1}, {"presence_penalty": 1.5, "frequency_penalty": 1.0}),
        ({"seed": 42}, {"seed": 42}),
        ({"seed": 0}, {"seed": 0}),
        ({"seed": -1}, {"seed": None}),
        ({"seed": -2}, {"seed": 2**63 - 2}),
        ({"stop": ["a", "b"]}, {"stop_sequences": ["a", "b"]}),
        ({"stop": "a"}, {"stop_sequences": ["a"]}),
        ({"stop": []}, {"stop_sequences": None}),
        ({"stop": [""]}, {"stop_sequences": None}),
        ({"num_predict": 3}, {"max_new_tokens": 3}),
    ],
)
async def test_options(server: RunningServer, options: dict[str, Any], expected: dict[str, Any]) -> None:
    answer = await ask(server, options)
    given = parameters(server).model_dump()
    assert {name: given[name] for name in expected} == expected
    assert HEADER not in answer.headers


@pytest.mark.parametrize("given", [-1, -2, 0, None, 10_000])
async def test_as_many_tokens_as_fit(server: RunningServer, given: int | None) -> None:
    await generate(server, options={"num_predict": given}, raw=True, prompt="Hi")
    assert parameters(server).max_new_tokens == UP_TO_THE_CONTEXT - 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_predict": -3}, "`options.num_predict` must be greater than or equal to -2. Given: -3"),
        ({"num_predict": "three"}, "`options.num_predict` must be a valid integer. Given: 'three'"),
        ({"temperature": -1}, "`options.temperature` must be greater than or equal to 0. Given: -1.0"),
        ({"top_p": 0}, "`options.top_p` must be greater than 0. Given: 0.0"),
        ({"repeat_penalty": 0}, "`options.repeat_penalty` must be greater than 0. Given: 0.0"),
        ({"stop": 5}, "`options.stop"),
    ],
)
async def test_wrong_values(server: RunningServer, options: dict[str, Any], message: str) -> None:
    for answer in (await generate(server, options=options), await chat(server, options=options)):
        assert answer.status == 400
        assert answer.json()["error"].startswith(message)


async def test_what_has_no_effect_is_told(server: RunningServer) -> None:
    given = {"num_ctx": 1024, "mirostat": 1, "num_gpu": 1, "repeat_last_n": 64, "unknown": 1}
    answer = await ask(server, given)
    assert answer.headers[HEADER] == "num_ctx, mirostat, num_gpu, repeat_last_n, unknown"


async def test_strict_parameters(serve: Serve, model_dir: ModelDirectory) -> None:
    server = await serve(model_dir({"serving.properties": SCRIPTED + "option.strict_parameters=true\n"}))
    refused = {
        "num_ctx": "`options.num_ctx` is not a field of this request",
        "unknown": "`options.unknown` is not a field of this request",
    }
    for name, message in refused.items():
        answer = await generate(server, options={name: 5})
        assert (answer.status, answer.json()["error"].startswith(message)) == (400, True), answer.body
    assert (await generate(server, options={"temperature": None})).status == 200
    cut = await generate(server, truncate=True)
    assert (cut.status, cut.json()["error"].partition(":")[0]) == (400, "`truncate` must be false")
