"""LMI's dynamic-batch schema over a real socket."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from lmi_core.backend import Backend
from lmi_core.hookspecs import hookimpl
from lmi_plugins.backends.scripted import Script, ScriptedBackend
from tests.conftest import ModelDirectory, RunningServer, Serve

PROMPT = "What is Deep Learning?"
TEXT = "Deep Learning is a really cool field."
DISABLE = "option.rolling_batch=disable\n"


class AutoBackend(ScriptedBackend):
    """A backend that `disable` selects in these tests instead of a real engine."""

    name = "auto_scripted"
    auto_priority = 100


class AutoPlugin:
    @hookimpl
    def lmi_register_backends(self, register: Callable[[type[Backend[Any]]], None]) -> None:
        register(AutoBackend)


async def serve_dynamic(serve: Serve, model_dir: ModelDirectory, properties: str = "") -> RunningServer:
    return await serve(model_dir({"serving.properties": DISABLE + properties}), plugins=[AutoPlugin()])


async def test_one_prompt(serve: Serve, model_dir: ModelDirectory) -> None:
    server = await serve_dynamic(serve, model_dir)
    answer = await server.post("/invocations", {"inputs": PROMPT})
    assert (answer.status, answer.content_type) == (200, "application/json")
    assert answer.body == b'[{"generated_text":"Deep Learning is a really cool field."}]'


async def test_rows_of_csv(serve: Serve, model_dir: ModelDirectory) -> None:
    server = await serve_dynamic(serve, model_dir)
    answer = await server.post("/invocations", data=b"inputs\none\ntwo\n", headers={"Content-Type": "text/csv"})
    assert [request.prompt for request in server.scripted.history] == ["one", "two"]
    assert len(answer.json()) == 2


async def test_max_length_counts_the_prompt_as_in_transformers(serve: Serve, model_dir: ModelDirectory) -> None:
    server = await serve_dynamic(serve, model_dir)
    for further, most in (
        ({}, [4, 7]),
        ({"max_new_tokens": 2}, [2, 2]),
        ({"max_tokens": 3}, [3, 3]),
        ({"max_length": 5000}, [2044, 2047]),
    ):
        server.scripted.history.clear()
        parameters = {"max_length": "8"} | further
        answer = await server.post(
            "/invocations", {"inputs": ["What is deep learning?", "one"], "parameters": parameters}
        )
        assert (answer.status, answer.headers.get("X-Lmi-Ignored-Parameters")) == (
            200,
            "max_length" if further.keys() & {"max_new_tokens", "max_tokens"} else None,
        )
        assert [request.parameters.max_new_tokens for request in server.scripted.history] == most
    for wrong in (4, 0, "long", True):
        answer = await server.post(
            "/invocations", {"inputs": "one two three four", "parameters": {"max_length": wrong}}
        )
        assert answer.status == 424
        assert "`max_length` must be" in answer.json()["error"], answer.body


async def test_a_list_of_prompts_is_answered_in_its_order(serve: Serve, model_dir: ModelDirectory) -> None:
    server = await serve_dynamic(serve, model_dir)
    server.scripted.enqueue(Script("a long first answer"), Script("short"))
    answer = await server.post(
        "/invocations", {"inputs": [PROMPT, "How many ways?"], "parameters": {"return_full_text": True}}
    )
    assert answer.json() == [
        {"generated_text": PROMPT + "a long first answer"},
        {"generated_text": "How many ways?short"},
    ]


@pytest.mark.parametrize(("properties", "asked"), [("option.enable_streaming=true\n", {}), ("", {"stream": True})])
async def test_streaming(serve: Serve, model_dir: ModelDirectory, properties: str, asked: dict[str, bool]) -> None:
    server = await serve_dynamic(serve, model_dir, properties)
    server.scripted.enqueue(Script("a b c"), Script("x"))
    answer = await server.post("/invocations", {"inputs": [PROMPT, PROMPT], **asked})
    assert (answer.status, answer.content_type) == (200, "application/jsonlines")
    assert answer.json_lines() == [{"outputs": ["a", "x"]}, {"outputs": [" b", ""]}, {"outputs": [" c", ""]}]


@pytest.mark.parametrize(
    ("payload", "message"),
    [
        ({}, "`inputs` is required"),
        ({"inputs": []}, "`inputs` must have at least 1 item. Given: []"),
        ({"inputs": ["a", ""]}, "`inputs.1` must have at least 1 character. Given: ''"),
        ({"inputs": 1}, "`inputs` must be a string, or a list of strings. Given: 1"),
        (
            {"inputs": "a", "parameters": {"details": True}},
            "`parameters.details` is only available with rolling batch. Given: True",
        ),
        (
            {"inputs": "a", "parameters": {"decoder_input_details": "yes"}},
            "`decoder_input_details` must be a valid boolean. Given: 'yes'",
        ),
        (
            {"inputs": "a", "parameters": {"top_p": 2}},
            "`top_p` must be less than or equal to 1. Given: 2",
        ),
    ],
)
async def test_errors(serve: Serve, model_dir: ModelDirectory, payload: object, message: str) -> None:
    server = await serve_dynamic(serve, model_dir)
    answer = await server.post("/invocations", payload)
    assert (answer.status, answer.content_type) == (424, "application/json")
    assert answer.json() == {"code": 424, "message": "invoke handler failure", "error": message}


async def test_plain_text(serve: Serve, model_dir: ModelDirectory) -> None:
    server = await serve_dynamic(serve, model_dir)
    answer = await server.post("/invocations", data=PROMPT.encode(), headers={"Content-Type": "text/plain"})
    assert (answer.status, answer.json()) == (200, [{"generated_text": TEXT}])
    assert server.scripted.history[-1].prompt == PROMPT


@pytest.mark.parametrize("strict", [False, True])
async def test_unknown_parameters(serve: Serve, model_dir: ModelDirectory, strict: bool) -> None:
    server = await serve_dynamic(serve, model_dir, "option.strict_parameters=true\n" if strict else "")
    answer = await server.post("/invocations", {"inputs": ["a", "b"], "parameters": {"zzz": 1}, "streem": True})
    if strict:
        message = "`streem` is not a field of this request. Did you mean `stream`?"
        assert (answer.status, answer.json()["error"]) == (424, message)
    else:
        assert (answer.status, answer.headers["X-Lmi-Ignored-Parameters"]) == (200, "streem, zzz")
        assert len(answer.json()) == 2


async def test_what_is_part_of_details_is_taken_and_has_no_place(serve: Serve, model_dir: ModelDirectory) -> None:
    server = await serve_dynamic(serve, model_dir)
    parameters = {"decoder_input_details": True, "logprobs": 1, "prompt_logprobs": 1}
    answer = await server.post("/invocations", {"inputs": PROMPT, "parameters": parameters})
    assert (answer.status, answer.json()) == (200, [{"generated_text": TEXT}])


async def test_failure_of_one_prompt_fails_the_call(serve: Serve, model_dir: ModelDirectory) -> None:
    server = await serve_dynamic(serve, model_dir)
    held = Script("a", hold=True)
    server.scripted.enqueue(held, Script("b", error="the engine fell over"))
    answer = await server.post("/invocations", {"inputs": [PROMPT, PROMPT]})
    assert answer.status == 424
    assert answer.json()["error"] == "the engine fell over"
    assert held.closed.is_set()


async def test_failure_within_a_stream(serve: Serve, model_dir: ModelDirectory) -> None:
    server = await serve_dynamic(serve, model_dir, "option.enable_streaming=true\n")
    server.scripted.enqueue(Script("a b", error="the engine fell over"))
    answer = await server.post("/invocations", {"inputs": PROMPT})
    assert answer.status == 200
    assert answer.json_lines()[-1] == {
        "code": 424,
        "message": "invoke handler failure",
        "error": "the engine fell over",
    }


async def test_requests_run_in_batches(serve: Serve, model_dir: ModelDirectory) -> None:
    server = await serve_dynamic(serve, model_dir, "batch_size=2\nmax_batch_delay=60000\n")
    first = asyncio.create_task(server.post("/invocations", {"inputs": "one"}))
    while server.dispatcher.in_flight < 1:
        await asyncio.sleep(0.001)
    assert server.scripted.history == []
    answers = await asyncio.gather(first, server.post("/invocations", {"inputs": "two"}))
    assert [answer.json() for answer in answers] == [[{"generated_text": TEXT}]] * 2


async def test_async_mode_keeps_rolling_batch(serve: Serve, model_dir: ModelDirectory) -> None:
    server = await serve_dynamic(serve, model_dir, "option.async_mode=true\n")
    assert (await server.post("/invocations", {"inputs": PROMPT})).json() == {"generated_text": TEXT}


async def test_what_is_refused_before_it_is_read(serve: Serve, model_dir: ModelDirectory) -> None:
    server = await serve_dynamic(serve, model_dir, "max_request_size=10\n")
    answer = await server.post("/invocations", {"inputs": PROMPT})
    assert (answer.status, answer.json()["code"]) == (413, 413)


async def test_what_waits_for_its_batch_does_not_run(serve: Serve, model_dir: ModelDirectory) -> None:
    server = await serve_dynamic(serve, model_dir, "batch_size=2\nmax_batch_delay=60000\n")

    async def counts() -> tuple[int, int]:
        (model,) = (await server.get("/console/state")).json()["models"]
        return model["running"], model["waiting"]

    held = [Script("one", hold=True) for _ in range(3)]
    server.scripted.enqueue(*held)
    async with asyncio.timeout(60):
        asked = [asyncio.create_task(server.post("/invocations", {"inputs": [PROMPT, PROMPT]}))]
        while await counts() != (0, 2):
            pass
        asked.append(asyncio.create_task(server.post("/invocations", {"inputs": PROMPT})))
        await asyncio.gather(*(script.started.wait() for script in held))
        assert await counts() == (3, 0)
        for task in asked:
            task.cancel()
        await asyncio.gather(*asked, *(script.closed.wait() for script in held), return_exceptions=True)
