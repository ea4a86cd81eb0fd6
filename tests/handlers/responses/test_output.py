"""Whole responses and streams: their items, events, statuses and counts."""

from typing import Any

import pytest

from lmi_plugins.backends.scripted import Script
from tests import golden
from tests.conftest import SCRIPTED, ModelDirectory, RunningServer, Serve, parameters
from tests.handlers.chat.said_calls import PARIS, SAID, tokens
from tests.handlers.responses.asking import CALL, PATH, TEXT, WEATHER, ask, kinds, plain, respond, serve_with, stream

THOUGHT = "<think>\nIt is hot there.\n</think>\n\n"
PROPERTIES = "option.tool_call_parser=hermes\noption.reasoning_parser=deepseek_r1\n"
MESSAGE = ["output_item.added", "content_part.added", "output_text.delta"]
MESSAGE_END = ["output_text.done", "content_part.done", "output_item.done"]
REASONING_END = ["reasoning_text.done", "content_part.done", "output_item.done"]
LOG_PROBS = {"include": ["message.output_text.logprobs"]}


@pytest.fixture
async def server(serve: Serve, model_dir: ModelDirectory) -> RunningServer:
    return await serve_with(serve, model_dir)


@pytest.fixture
async def thinking(serve: Serve, model_dir: ModelDirectory) -> RunningServer:
    return await serve_with(serve, model_dir, PROPERTIES)


def text_of(events: list[dict[str, Any]], kind: str = "output_text") -> str:
    return "".join(event["delta"] for event in events if event["type"] == f"response.{kind}.delta")


async def test_message(server: RunningServer) -> None:
    response = await respond(server)
    (message,) = response["output"]
    assert message["id"].startswith("msg_")
    assert plain(message) == {
        "type": "message",
        "status": "completed",
        "role": "assistant",
        "content": [{"type": "output_text", "text": TEXT, "annotations": [], "logprobs": []}],
    }
    assert (response["status"], response["incomplete_details"], response["error"]) == ("completed", None, None)
    assert response["completed_at"] >= response["created_at"]
    assert response["usage"] == {
        "input_tokens": 5,
        "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
        "output_tokens": 7,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": 12,
    }


async def test_stream_of_a_message(server: RunningServer) -> None:
    events = await stream(server)
    assert kinds(events) == [
        "created",
        "in_progress",
        *MESSAGE,
        *["output_text.delta"] * 6,
        *MESSAGE_END,
        "completed",
    ]
    assert text_of(events) == TEXT
    created, last = events[0]["response"], events[-1]["response"]
    assert (created["status"], created["output"], created["usage"]) == ("in_progress", [], None)
    assert created["id"] == last["id"]
    assert plain(last) == plain(await respond(server))
    assert events[-2]["item"] == last["output"][0]
    assert {event["item_id"] for event in events if "item_id" in event} == {last["output"][0]["id"]}


async def test_everything_at_once(thinking: RunningServer) -> None:
    said = f"{THOUGHT}Let me see. {CALL}\n{CALL}"
    thinking.scripted.enqueue(Script(said), Script(said), Script(tokens=list(said)))
    whole = await respond(thinking, tools=[WEATHER])
    reasoning, message, first, second = whole["output"]
    assert plain(reasoning) == {
        "type": "reasoning",
        "status": "completed",
        "summary": [],
        "content": [{"type": "reasoning_text", "text": "It is hot there."}],
        "encrypted_content": None,
    }
    assert message["content"][0]["text"] == "Let me see."
    assert plain(first) == {"type": "function_call", "status": "completed", "name": "weather", "arguments": PARIS}
    assert first["call_id"] != second["call_id"]
    assert whole["usage"]["output_tokens_details"] == {"reasoning_tokens": 6}
    events = await stream(thinking, tools=[WEATHER])
    assert kinds(events)[2:11] == [
        *["output_item.added", "content_part.added"],
        *["reasoning_text.delta"] * 4,
        *REASONING_END,
    ]
    assert kinds(events)[-4:] == [
        "function_call_arguments.delta",
        "function_call_arguments.done",
        "output_item.done",
        "completed",
    ]
    assert plain(events[-1]["response"]) == plain(whole)
    letters = await stream(thinking, tools=[WEATHER])
    assert plain(letters[-1]["response"]["output"]) == plain(whole["output"])
    assert text_of(letters, "reasoning_text") == "It is hot there."


async def test_events_tell_of_each_item_in_turn(thinking: RunningServer) -> None:
    """Each item begins, grows and ends before the next one, and its last event holds all of it."""
    thinking.scripted.enqueue(Script(f"{THOUGHT}Let me see. {CALL} Done. {CALL}"))
    events = await stream(thinking, tools=[WEATHER])
    indices = [event["output_index"] for event in events if "output_index" in event]
    assert indices == sorted(indices)
    output = events[-1]["response"]["output"]
    assert kinds(output) == ["reasoning", "message", "function_call", "message", "function_call"]
    added = [event["item"] for event in events if event["type"] == "response.output_item.added"]
    done = [event["item"] for event in events if event["type"] == "response.output_item.done"]
    assert done == output
    assert [item["id"] for item in added] == [item["id"] for item in output]
    assert all(item["status"] == "in_progress" for item in added)
    for event in events:
        if event["type"] == "response.function_call_arguments.done":
            call = output[event["output_index"]]
            assert (event["arguments"], event["name"]) == (call["arguments"], call["name"])


@pytest.mark.parametrize("name", SAID)
async def test_calls_of_every_family(serve: Serve, model_dir: ModelDirectory, name: str) -> None:
    server = await serve_with(serve, model_dir, f"option.tool_call_parser={name}\n")
    server.scripted.enqueue(Script(SAID[name]), Script(tokens=tokens(SAID[name])))
    response = await respond(server, tools=[WEATHER])
    message, call = response["output"]
    assert message["content"][0]["text"] == "Let me see."
    assert (call["type"], call["name"], call["arguments"]) == ("function_call", "weather", PARIS)
    events = await stream(server, tools=[WEATHER])
    assert plain(events[-1]["response"]["output"]) == plain(response["output"])
    assert text_of(events, "function_call_arguments") == PARIS


@pytest.mark.parametrize("choice", ["required", {"type": "function", "name": "weather"}])
async def test_calls_that_must_be_made(server: RunningServer, choice: Any) -> None:
    said = f'[{{"name": "weather", "parameters": {PARIS}}}]' if choice == "required" else PARIS
    server.scripted.enqueue(Script(said), Script(said))
    response = await respond(server, tools=[WEATHER], tool_choice=choice)
    (call,) = response["output"]
    assert (call["type"], call["name"], call["arguments"]) == ("function_call", "weather", PARIS)
    assert response["tool_choice"] == choice
    assert parameters(server).guided_json is not None
    streamed = (await stream(server, tools=[WEATHER], tool_choice=choice))[-1]["response"]
    assert plain(streamed) == plain(response)


async def test_one_call_alone(thinking: RunningServer) -> None:
    thinking.scripted.enqueue(Script(f"{THOUGHT}{CALL}{CALL}"))
    response = await respond(thinking, tools=[WEATHER], parallel_tool_calls=False)
    assert kinds(response["output"]) == ["reasoning", "function_call"]
    assert response["parallel_tool_calls"] is False


async def test_cut_answer(server: RunningServer) -> None:
    response = await respond(server, max_output_tokens=2)
    assert (response["status"], response["incomplete_details"]) == ("incomplete", {"reason": "max_output_tokens"})
    (message,) = response["output"]
    assert (message["status"], message["content"][0]["text"]) == ("incomplete", "Deep Learning")
    assert response["completed_at"] is None
    events = await stream(server, max_output_tokens=2)
    assert events[-1]["type"] == "response.incomplete"
    assert plain(events[-1]["response"]) == plain(response)


async def test_answer_cut_within_its_reasoning(thinking: RunningServer) -> None:
    thinking.scripted.enqueue(Script(THOUGHT), Script(THOUGHT))
    response = await respond(thinking, max_output_tokens=3)
    assert [(item["type"], item["status"]) for item in response["output"]] == [("reasoning", "incomplete")]
    assert plain((await stream(thinking, max_output_tokens=3))[-1]["response"]) == plain(response)


async def test_answer_without_a_text_is_an_empty_message(server: RunningServer) -> None:
    server.scripted.enqueue(Script(tokens=[""]), Script(tokens=[""]))
    response = await respond(server, **LOG_PROBS)
    (message,) = response["output"]
    assert (message["type"], message["content"][0]["text"]) == ("message", "")
    assert [token["token"] for token in message["content"][0]["logprobs"]] == [""]
    events = await stream(server, **LOG_PROBS)
    assert plain(events[-1]["response"]) == plain(response)


async def test_hidden_reasoning(thinking: RunningServer) -> None:
    thinking.scripted.enqueue(Script(f"{THOUGHT}Yes."), Script(f"{THOUGHT}Yes."))
    response = await respond(thinking, include_reasoning=False)
    assert kinds(response["output"]) == ["message"]
    assert response["usage"]["output_tokens_details"]["reasoning_tokens"] == 6
    events = await stream(thinking, include_reasoning=False)
    assert plain(events[-1]["response"]) == plain(response)
    assert not any("reasoning" in kind for kind in kinds(events))


@pytest.mark.parametrize("fields", [LOG_PROBS, {"top_logprobs": 2}, LOG_PROBS | {"top_logprobs": 2}])
async def test_log_probabilities(server: RunningServer, fields: dict[str, Any]) -> None:
    response = await respond(server, **fields)
    tokens = response["output"][0]["content"][0]["logprobs"]
    assert "".join(token["token"] for token in tokens) == TEXT
    assert [token["logprob"] for token in tokens] == [-0.25] * 7
    assert all(bytes(token["bytes"]).decode() == token["token"] for token in tokens)
    assert [len(token["top_logprobs"]) for token in tokens] == [fields.get("top_logprobs", 0)] * 7
    events = await stream(server, **fields)
    deltas = [event for event in events if event["type"] == "response.output_text.delta"]
    assert [token for delta in deltas for token in delta["logprobs"]] == tokens
    (done,) = (event for event in events if event["type"] == "response.output_text.done")
    assert done["logprobs"] == tokens


async def test_log_probabilities_are_of_the_message_alone(thinking: RunningServer) -> None:
    """Tokens of the reasoning and of calls have no place; those without a text have."""
    thinking.scripted.enqueue(Script(tokens=["<think>", "hot", "</think>", "Yes", ".", "", "<tool_call>", "{"]))
    thinking.scripted.enqueue(
        Script(tokens=["<think>", "hot", "</think>", "Let", " me", "", " see", ". ", *list(CALL)])
    )
    tools = {"tools": [WEATHER]}
    told = [
        token["token"]
        for token in (await respond(thinking, **LOG_PROBS, **tools))["output"][1]["content"][0]["logprobs"]
    ]
    assert told == ["Yes", ".", "", "<tool_call>", "{"]  # what seemed to become a call is text
    events = await stream(thinking, **LOG_PROBS, **tools)
    output = events[-1]["response"]["output"]
    assert kinds(output) == ["reasoning", "message", "function_call"]
    assert [token["token"] for token in output[1]["content"][0]["logprobs"]] == ["Let", " me", "", " see", ". "]


async def test_log_probabilities_of_a_token_that_ends_the_reasoning_and_begins_the_message(
    thinking: RunningServer,
) -> None:
    thinking.scripted.enqueue(Script(tokens=["<think>", "hot", "</think>Yes", "."]))
    response = await respond(thinking, **LOG_PROBS)
    message = response["output"][1]["content"][0]
    assert (message["text"], [token["token"] for token in message["logprobs"]]) == ("Yes.", ["</think>Yes", "."])


async def test_failure_before_the_stream(server: RunningServer) -> None:
    server.scripted.enqueue(Script(error="out of order"))
    answer = await ask(server, stream=True)
    assert answer.status == 500
    assert answer.json()["error"]["code"] == "generation_failed"


async def test_failure_within_the_stream(server: RunningServer) -> None:
    server.scripted.enqueue(Script("one two", error="out of order"))
    events = await stream(server)
    assert kinds(events)[-2:] == ["error", "failed"]
    assert (events[-2]["code"], events[-2]["message"]) == ("generation_failed", "out of order")
    response = events[-1]["response"]
    assert (response["status"], response["error"]) == ("failed", {"code": "server_error", "message": "out of order"})
    assert response["output"][0]["content"][0]["text"] == "one two"
    kept = await server.get(f"{PATH}/{response['id']}")
    assert kept.json() == response


async def test_best_of_several(server: RunningServer) -> None:
    response = await respond(server, best_of=2)
    assert response["output"][0]["content"][0]["text"] == TEXT
    assert response["usage"]["output_tokens"] == 14
    refused = await ask(server, best_of=2, stream=True)
    assert (
        refused.json()["error"]["message"]
        == "`best_of` must be at most 1, the number of sequences in the stream. Given: 2"
    )


async def test_formatter_of_the_models_own_code(serve: Serve, model_dir: ModelDirectory) -> None:
    code = "from lmi_core.formatter import output_formatter\n\n\n@output_formatter\ndef mine(output):\n"
    code += "    return 'mine ' if output.finished else ''\n"
    server = await serve(model_dir({"serving.properties": SCRIPTED, "model.py": code}))
    answer = await ask(server)
    assert (answer.status, answer.body) == (200, b"mine ")


async def test_what_the_models_own_code_changes_is_not_kept(serve: Serve, model_dir: ModelDirectory) -> None:
    code = """\
import json

from djl_python.output_formatter import output_formatter


@output_formatter
def discreet(response_data: dict) -> dict:
    return json.loads(json.dumps(response_data).replace("cool", "****"))
"""
    server = await serve(model_dir({"serving.properties": SCRIPTED, "model.py": code}))
    response = await respond(server)
    assert response["output"][0]["content"][0]["text"] == TEXT.replace("cool", "****")
    events = await stream(server)
    assert text_of(events) == TEXT.replace("cool", "****")
    for told in (response, events[-1]["response"]):
        assert (await server.get(f"{PATH}/{told['id']}")).status == 404


def dialect(prompt: str, parameters: dict[str, Any], form: str) -> tuple[str, object]:
    names = {"max_new_tokens": "max_output_tokens", "stop_sequences": "stop"}
    fields = {names.get(name, name): value for name, value in parameters.items()}
    return PATH, {"input": prompt, "stream": form == "stream"} | fields


@pytest.mark.parametrize("case", golden.CASES)
@pytest.mark.parametrize("form", golden.FORMS)
async def test_golden_transcript(server: RunningServer, form: str, case: str) -> None:
    await golden.replay(server, "openai_responses", dialect, form, case)
