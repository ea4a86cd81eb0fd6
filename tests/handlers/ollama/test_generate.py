"""Ollama's /api/generate."""

from typing import Any

import orjson
import pytest

from lmi_plugins.backends.scripted import Script
from tests import golden
from tests.conftest import SCRIPTED, ModelDirectory, RunningServer, Serve, parameters
from tests.handlers.ollama.asking import DURATIONS, PROMPT, TEXT, WHOLE, WORDS, generate, without_times

HEADER = "X-Lmi-Ignored-Parameters"
EMPTY_SCHEMA = {"type": "object"}


@pytest.fixture
async def server(serve: Serve, model_dir: ModelDirectory) -> RunningServer:
    return await serve(model_dir({"serving.properties": SCRIPTED + "job_queue_size=1\n"}))


async def error_text(server: RunningServer, **fields: Any) -> str:
    answer = await generate(server, **fields)
    assert (answer.status, answer.content_type, list(answer.json())) == (400, "application/json", ["error"])
    return str(answer.json()["error"])


async def test_stream_is_the_default(server: RunningServer) -> None:
    answer = await generate(server)
    assert (answer.status, answer.content_type) == (200, "application/x-ndjson")
    *lines, last = [without_times(line) for line in answer.json_lines()]
    assert lines == [{"model": "model", "response": word, "done": False} for word in WORDS]
    ended = {"done": True, "done_reason": "stop", "prompt_eval_count": 6, "eval_count": 7}
    assert last == {"model": "model", "response": "", **ended}


async def test_whole(server: RunningServer) -> None:
    answer = await generate(server, **WHOLE)
    assert answer.content_type == "application/json"
    ended = {"done": True, "done_reason": "stop", "prompt_eval_count": 6, "eval_count": 7}
    assert without_times(answer.json()) == {"model": "model", "response": TEXT, **ended}


@pytest.mark.parametrize("stream", [False, True])
async def test_times_add_up(serve: Serve, model_dir: ModelDirectory, stream: bool) -> None:
    server = await serve(model_dir({"serving.properties": SCRIPTED + "option.scripted_delay=0.01\n"}))
    last = (await generate(server, stream=stream)).body.splitlines()[-1]
    found = orjson.loads(last)
    total, load, prompt, answer = (found[name] for name in DURATIONS)
    assert load == 0
    assert prompt > 0
    assert answer >= 6 * 10_000_000  # six pauses come after the first token
    assert prompt + answer <= total


async def test_the_chat_template_is_applied(server: RunningServer) -> None:
    await generate(server, system="Be brief.", prompt="Hi")
    assert server.scripted.history[-1].prompt == "system: Be brief.\nuser: Hi\nassistant:"
    await generate(server, prompt="Hi", raw=True)
    assert server.scripted.history[-1].prompt == "Hi"


async def test_model_without_a_chat_template(server: RunningServer) -> None:
    server.scripted.tokenizer.template = None
    await generate(server, prompt="Hi")
    assert server.scripted.history[-1].prompt == "Hi"
    assert "need a chat template" in await error_text(server, system="Be brief.")


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"keep_alive": 0}, "unload"),
        ({"keep_alive": "0h0.0s"}, "unload"),
        ({"keep_alive": "-1m1.5s"}, "load"),
        ({"keep_alive": "5m"}, "load"),
        ({}, "load"),
    ],
)
async def test_without_a_prompt(server: RunningServer, fields: dict[str, Any], reason: str) -> None:
    for prompt in ("", None):
        answer = await generate(server, prompt=prompt, **fields)
        assert (answer.status, answer.content_type) == (200, "application/json")
        expected = {"model": "model", "response": "", "done": True, "done_reason": reason}
        assert without_times(answer.json()) == expected
    assert server.scripted.history == []


@pytest.mark.parametrize("given", ["", "5", "soon", "5 m", "1d"])
async def test_keep_alive_that_is_no_duration(server: RunningServer, given: str) -> None:
    answer = await generate(server, keep_alive=given)
    message = f"`keep_alive` must be a number of seconds, or a duration such as 5m or 1h30m. Given: {given!r}"
    assert (answer.status, answer.json()) == (400, {"error": message})


async def test_ignored_fields_of_a_request_without_a_prompt(server: RunningServer) -> None:
    assert (await generate(server, prompt="", zzz=1)).headers[HEADER] == "zzz"


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"template": "{{ .Prompt }}"}, "`template` must be null or '': it is a program in Go's template language"),
        ({"context": [1, 2]}, "`context` must be null or []: answers contain no context; use /api/chat for"),
        ({"raw": True, "system": "x"}, "`raw` and `system` cannot be used together"),
        ({"raw": True, "suffix": "x"}, "`raw` and `suffix` cannot be used together"),
        ({"suffix": "x", "images": ["x"]}, "`suffix` and `images` cannot be used together"),
        ({"suffix": "x"}, "`suffix` is not supported by this model"),
        ({"images": ["x"]}, "`images.0` is an image, but this model accepts only text on the scripted backend"),
        ({"format": "yaml"}, "`format` must be \"json\", or a JSON schema, which is an object. Given: 'yaml'"),
        ({"think": True}, '"model" does not support thinking: `think` needs option.reasoning_parser'),
        ({"top_logprobs": 21}, "`top_logprobs` must be less than or equal to 20. Given: 21"),
        ({"prompt": 5}, "`prompt` must be a valid string. Given: 5"),
        ({"options": []}, "`options`"),
    ],
)
async def test_refused(server: RunningServer, fields: dict[str, Any], message: str) -> None:
    assert message in await error_text(server, **fields)
    assert server.scripted.history == []


async def test_neutral_values_are_taken(server: RunningServer) -> None:
    neutral = {"template": "", "context": [], "format": "", "images": [], "suffix": "", "raw": False, "think": False}
    answer = await generate(server, **neutral, truncate=False, shift=False, options=None, system="")
    assert (answer.status, HEADER in answer.headers) == (200, False)


async def test_what_is_not_done_is_told(server: RunningServer) -> None:
    answer = await generate(server, truncate=True, shift=True, top_logprobs=2, width=9)
    assert (answer.status, answer.headers[HEADER]) == (200, "truncate, shift, top_logprobs, width")


@pytest.mark.parametrize(("given", "schema"), [("json", EMPTY_SCHEMA), ({"type": "array"}, {"type": "array"})])
@pytest.mark.parametrize("raw", [False, True])
async def test_format(server: RunningServer, given: object, schema: dict[str, Any], raw: bool) -> None:
    await generate(server, format=given, raw=raw)
    assert parameters(server).guided_json == schema


async def test_fill_in_the_middle(server: RunningServer) -> None:
    tokenizer = server.scripted.tokenizer
    prefix, suffix, middle = [tokenizer.id(f"<|fim_{part}|>") for part in ("prefix", "suffix", "middle")]
    answer = await generate(server, prompt="a b", suffix=" c", **WHOLE)
    assert answer.json()["response"] == TEXT
    expected = [prefix, *tokenizer.encode("a b"), suffix, *tokenizer.encode(" c"), middle]
    assert server.scripted.history[-1].prompt_ids == expected
    assert set(parameters(server).stop_token_ids or ()) >= {prefix, suffix, middle}


@pytest.mark.parametrize("raw", [False, True])
async def test_log_probs(server: RunningServer, raw: bool) -> None:
    fields = {"logprobs": True, "options": {"num_predict": 2}, "raw": raw}
    found = (await generate(server, **fields, **WHOLE)).json()["logprobs"]
    assert found == [
        {"token": "Deep", "logprob": -0.25, "bytes": list(b"Deep")},
        {"token": " Learning", "logprob": -0.25, "bytes": list(b" Learning")},
    ]
    top = await generate(server, **fields, top_logprobs=2)
    lines = top.json_lines()
    assert [line["logprobs"][0]["token"] for line in lines[:-1]] == WORDS[:2]
    assert [len(line["logprobs"][0]["top_logprobs"]) for line in lines[:-1]] == [2, 2]
    assert "logprobs" not in lines[-1]


async def test_failure_within_a_stream_is_its_last_line(server: RunningServer) -> None:
    server.scripted.enqueue(Script("Deep", error="the engine fell over"))
    first, last = (await generate(server)).json_lines()
    assert (first["response"], last) == ("Deep", {"error": "the engine fell over"})


async def test_failure_of_a_whole_answer(server: RunningServer) -> None:
    server.scripted.enqueue(Script("Deep", error="the engine fell over"))
    answer = await generate(server, **WHOLE)
    assert (answer.status, answer.json()) == (500, {"error": "the engine fell over"})


async def test_aborted(server: RunningServer) -> None:
    script = Script("Deep Learning", hold=True)
    server.scripted.enqueue(script)
    async with server.client.post("/api/generate", json={"prompt": PROMPT}, headers={"x-request-id": "a"}) as response:
        await script.started.wait()
        await server.post("/v1/abort_request", {"request_id": "a"})
        last = (await response.read()).splitlines()[-1]
    assert b'"done":true,"done_reason":"abort"' in last


def dialect(prompt: str, given: dict[str, Any], form: str) -> tuple[str, object]:
    names = {"stop_sequences": "stop", "max_new_tokens": "num_predict"}
    options = {names.get(name, name): value for name, value in given.items()}
    whole = {} if form == "stream" else WHOLE
    return "/api/generate", {"model": "model", "prompt": prompt, "raw": True, "options": options, **whole}


@pytest.mark.parametrize("case", golden.CASES)
@pytest.mark.parametrize("form", golden.FORMS)
async def test_golden_transcript(server: RunningServer, form: str, case: str) -> None:
    await golden.replay(server, "ollama_generate", dialect, form, case)
