"""The messages that the chat template gets of a conversation's items."""

from collections.abc import Callable
from typing import Any

import pytest

from tests.conftest import ModelDirectory, RunningServer, Serve
from tests.handlers.chat.test_images import PROPERTIES, SeeingPlugin, base64
from tests.handlers.responses.asking import PATH, ask, messages, serve_with

Json = dict[str, Any]


@pytest.fixture
async def server(serve: Serve, model_dir: ModelDirectory) -> RunningServer:
    return await serve_with(serve, model_dir)


def item(role: str, content: object, **members: Any) -> Json:
    return {"role": role, "content": content, **members}


def call(number: int, arguments: str = '{"city": "Paris"}') -> Json:
    return {"type": "function_call", "call_id": f"call_{number}", "name": "weather", "arguments": arguments}


def result(number: int, output: object = "sunny") -> Json:
    return {"type": "function_call_output", "call_id": f"call_{number}", "output": output}


def thought(text: str) -> Json:
    return {"type": "reasoning", "id": "rs_1", "summary": [], "content": [{"type": "reasoning_text", "text": text}]}


def answer(text: str) -> Json:
    content = [{"type": "output_text", "text": text, "annotations": [], "logprobs": []}]
    return {"type": "message", "id": "msg_1", "status": "completed", "role": "assistant", "content": content}


def called(*numbers: int) -> list[Json]:
    function = {"name": "weather", "arguments": {"city": "Paris"}}
    return [{"id": f"call_{number}", "type": "function", "function": function} for number in numbers]


HI = item("user", "Hi")
TOOL = [item("tool", "sunny", tool_call_id=f"call_{number}") for number in (0, 1, 2)]
REASONED: Callable[[str], Json] = lambda text: {"reasoning": text, "reasoning_content": text}  # noqa: E731


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("Hi", [HI]),
        ([HI], [HI]),
        ([{"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Hi"}]}], [HI]),
        ([HI, item("assistant", "Hello"), HI], [HI, item("assistant", "Hello"), HI]),
        ([item("developer", "Be kind."), HI], [item("system", "Be kind."), HI]),
        ([HI, answer("a"), answer("b"), HI], [HI, item("assistant", "a"), item("assistant", "b"), HI]),
        (
            [HI, thought("hm"), answer("Hello"), HI],
            [HI, item("assistant", "Hello", **REASONED("hm")), HI],
        ),
        (
            [HI, thought("hm"), call(1), result(1)],
            [HI, item("assistant", "", tool_calls=called(1), **REASONED("hm")), TOOL[1]],
        ),
        (
            [HI, answer("Let me see."), call(1), call(2), answer(" Soon."), result(1), result(2), answer("Sunny.")],
            [
                HI,
                item("assistant", "Let me see. Soon.", tool_calls=called(1, 2)),
                TOOL[1],
                TOOL[2],
                item("assistant", "Sunny."),
            ],
        ),
        (
            [HI, call(1), result(1), thought("and now"), call(2), result(2)],
            [
                HI,
                item("assistant", "", tool_calls=called(1)),
                TOOL[1],
                item("assistant", "", tool_calls=called(2), **REASONED("and now")),
                TOOL[2],
            ],
        ),
        (
            [
                HI,
                {"type": "reasoning", "id": "rs", "summary": [{"type": "summary_text", "text": "in short"}]},
                answer("a"),
            ],
            [HI, item("assistant", "a", **REASONED("in short"))],
        ),
        (
            [HI, call(0, "no JSON"), result(0, [{"type": "input_text", "text": "sunny"}])],
            [
                HI,
                item("assistant", "", tool_calls=[called(0)[0] | {"function": {"name": "weather", "arguments": {}}}]),
                TOOL[0],
            ],
        ),
        (
            [HI, answer("Hello"), {"type": "reasoning", "summary": [], "encrypted_content": None}, HI],
            [HI, item("assistant", "Hello"), HI],
        ),
        (
            [
                HI,
                {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"query": "x"}},
                {
                    "type": "custom_tool_call",
                    "id": "c",
                    "call_id": "call_1",
                    "name": "apply_patch",
                    "input": "*** Begin",
                },
                {"type": "custom_tool_call_output", "call_id": "call_1", "output": "Done!"},
            ],
            [
                HI,
                item(
                    "assistant",
                    "",
                    tool_calls=[
                        {
                            "id": "call_1",
                            "type": "function",
                            "function": {"name": "apply_patch", "arguments": {"input": "*** Begin"}},
                        }
                    ],
                ),
                item("tool", "Done!", tool_call_id="call_1"),
            ],
        ),
        (
            [{"role": "assistant", "content": [{"type": "refusal", "refusal": "No."}]}, HI],
            [item("assistant", "No."), HI],
        ),
    ],
)
async def test_messages(server: RunningServer, given: object, expected: list[Json]) -> None:
    assert await messages(server, given) == expected


async def test_instructions_come_first(server: RunningServer) -> None:
    found = await messages(server, "Hi", instructions="Be brief.")
    assert found == [item("system", "Be brief."), HI]
    assert await messages(server, "Hi", instructions="") == [HI]


def seen_images(server: RunningServer) -> object:
    """Return the images of the backend's latest request."""
    prompt = server.scripted.history[-1].image_prompt
    assert prompt is not None
    return prompt.content


@pytest.mark.parametrize("status", ["incomplete", "in_progress"])
async def test_unfinished_message_goes_on(server: RunningServer, status: str) -> None:
    begun = answer("Deep Lear") | {"status": status}
    await ask(server, [HI, begun])
    assert server.scripted.history[-1].prompt.endswith("assistant: Deep Lear")
    await ask(server, [HI, begun, HI])
    assert server.scripted.history[-1].prompt.endswith("user: Hi\nassistant:")


async def test_images(serve: Serve, model_dir: ModelDirectory) -> None:
    server = await serve(model_dir({"serving.properties": PROPERTIES}), plugins=[SeeingPlugin()])

    def seen(*urls: str) -> list[Json]:
        return [{"type": "input_image", "image_url": url} for url in urls]

    text = {"type": "input_text", "text": "What is it?"}
    good = f"data:image/png;base64,{base64(b'cat')}"
    assert (await ask(server, [item("user", [text, *seen(good)])])).status == 200
    assert seen_images(server) == [b"cat"]
    shown = [item("user", "Look."), call(1), result(1, seen(good))]
    assert (await ask(server, shown)).status == 200
    wrong = await ask(server, [HI, item("user", [text, *seen("data:image/png;base64,?")])])
    assert wrong.json()["error"]["message"] == (
        "`input.1.content.1.image_url` must be an http or https URL, or an image in base64"
    )
    wrong = await ask(server, [item("user", "Look."), call(1), result(1, seen("?"))])
    assert wrong.json()["error"]["param"] == "input.2.output.0.image_url"
    many = await ask(server, [item("user", [*seen(good, good), *seen(good)])])
    assert (
        many.json()["error"]["message"] == "`input.0.content.2` is one image too many: `input` must contain at most 2"
    )


async def test_image_of_an_earlier_response(serve: Serve, model_dir: ModelDirectory) -> None:
    server = await serve(model_dir({"serving.properties": PROPERTIES}), plugins=[SeeingPlugin()])
    image = {"type": "input_image", "image_url": base64(b"cat")}
    first = await ask(server, [item("user", [image])])
    second = await ask(server, "And now?", previous_response_id=first.json()["id"])
    assert (second.status, seen_images(server)) == (200, [b"cat"])
    third = await ask(server, [item("user", [image])], previous_response_id=first.json()["id"])
    fourth = await ask(server, "And now?", previous_response_id=third.json()["id"])
    assert (fourth.status, seen_images(server)) == (200, [b"cat", b"cat"])
    many = await ask(server, [item("user", [image, image])], previous_response_id=first.json()["id"])
    assert many.json()["error"]["param"] == "input.0.content.1"
    listed = await server.get(f"{PATH}/{first.json()['id']}/input_items")
    assert listed.json()["data"][0]["content"] == [image | {"detail": "auto"}]
