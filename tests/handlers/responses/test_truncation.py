"""Conversations that do not fit in the context, with `truncation` of auto."""

from typing import Any

import pytest

from tests.conftest import ModelDirectory, RunningServer, Serve
from tests.handlers.chat.test_images import PROPERTIES, SeeingPlugin, base64
from tests.handlers.responses.asking import ask, respond, serve_with

CONTEXT = 40  # tokens


@pytest.fixture
async def server(serve: Serve, model_dir: ModelDirectory) -> RunningServer:
    server = await serve_with(serve, model_dir)
    server.scripted.max_length = CONTEXT
    return server


def message(role: str, words: str) -> dict[str, str]:
    return {"role": role, "content": words}


def turns(count: int) -> list[dict[str, Any]]:
    """Return turns, each of which takes ten tokens of the prompt."""
    found: list[dict[str, Any]] = []
    for number in range(count):
        found += [message("user", f"{number} a b c"), message("assistant", f"{number} d e f")]
    return found


def prompt(server: RunningServer) -> str:
    return server.scripted.history[-1].prompt


async def test_the_oldest_turns_are_left_out(server: RunningServer) -> None:
    response = await respond(server, [*turns(10), message("user", "last")], truncation="auto", instructions="Be kind.")
    assert response["truncation"] == "auto"
    assert prompt(server).startswith("system: Be kind.\nuser: 7 a b c\nassistant: 7 d e f\n")
    assert prompt(server).endswith("user: last\nassistant:")


async def test_there_is_room_for_the_answer(server: RunningServer) -> None:
    await respond(server, [*turns(10), message("user", "last")], truncation="auto", max_output_tokens=20)
    assert prompt(server).startswith("user: 9 a b c")


async def test_a_conversation_that_fits_stays_whole(server: RunningServer) -> None:
    await respond(server, [*turns(3), message("user", "last")], truncation="auto")
    assert prompt(server).startswith("user: 0 a b c")


@pytest.mark.parametrize("truncation", ["disabled", None])
async def test_without_it_the_prompt_is_too_long(server: RunningServer, truncation: str | None) -> None:
    answer = await ask(server, [*turns(10), message("user", "last")], truncation=truncation)
    assert (answer.status, answer.json()["error"]["code"]) == (400, "context_length_exceeded")


@pytest.mark.parametrize("count", [0, 1, 10])
async def test_a_last_turn_that_is_too_long_is_an_error(server: RunningServer, count: int) -> None:
    answer = await ask(server, [*turns(count), message("user", "word " * CONTEXT)], truncation="auto")
    assert (answer.status, answer.json()["error"]["code"]) == (400, "context_length_exceeded")


async def test_calls_stay_with_their_results(server: RunningServer) -> None:
    call = {"type": "function_call", "call_id": "call_1", "name": "weather", "arguments": "{}"}
    result = {"type": "function_call_output", "call_id": "call_1", "output": "sunny " * 10}
    given = [*turns(2), message("user", "Weather?"), call, result, message("user", "Thanks."), message("user", "Bye.")]
    await respond(server, given, truncation="auto", max_output_tokens=30)
    assert prompt(server) == "user: Thanks.\nuser: Bye.\nassistant:"


async def test_kept_responses_are_shortened_too(server: RunningServer) -> None:
    first = await respond(server, turns(3)[:-1])
    await respond(server, "last", previous_response_id=first["id"], truncation="auto", max_output_tokens=15)
    assert prompt(server).startswith("user: 2 a b c")


async def test_what_is_far_too_long_is_not_tokenized(server: RunningServer) -> None:
    given = [*turns(1000), message("user", "last")]
    await respond(server, given, truncation="auto", user="somebody")
    assert prompt(server).startswith("user: 997 a b c")


async def test_images_of_turns_that_are_left_out(serve: Serve, model_dir: ModelDirectory) -> None:
    server = await serve(model_dir({"serving.properties": PROPERTIES}), plugins=[SeeingPlugin()])
    server.scripted.max_length = CONTEXT
    image = {"type": "input_image", "image_url": base64(b"cat")}
    given = [{"role": "user", "content": [image]}, message("assistant", "A cat."), *turns(4), message("user", "last")]
    await respond(server, given, truncation="auto")
    assert server.scripted.history[-1].image_prompt is None
    assert prompt(server).startswith("user: 1 a b c")
