"""Ollama's /api/chat."""

from base64 import b64encode
from typing import Any

import pytest

from lmi_plugins.backends.scripted import Script
from tests import golden
from tests.conftest import SCRIPTED, ModelDirectory, RunningServer, Serve, parameters
from tests.handlers.chat.test_images import SeeingPlugin
from tests.handlers.ollama.asking import MESSAGES, TEXT, WHOLE, WORDS, chat, without_times

TOOLED = """\
{% for tool in tools or [] %}tool: {{ tool.function.name }}
{% endfor %}{% for message in messages %}{{ message | tojson }}
{% endfor %}think: {{ enable_thinking }} {{ reasoning_effort }}"""
PROPERTIES = f"{SCRIPTED}option.tool_call_parser=hermes\noption.chat_template=template.jinja\njob_queue_size=1\n"
THINKING = "option.reasoning_parser=qwen3\n"
TOOL = {
    "type": "function",
    "function": {"name": "weather", "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}},
}
CALL = '<tool_call>\n{"name": "weather", "arguments": {"city": "Paris"}}\n</tool_call>'
CUT = '<tool_call>\n{"name": "weather", "arguments": {"city": "Pa'
THOUGHT = "<think>\nLet me see.\n</think>\n\nYes, it is."


@pytest.fixture
async def server(serve: Serve, model_dir: ModelDirectory) -> RunningServer:
    return await serve(model_dir({"serving.properties": PROPERTIES, "template.jinja": TOOLED}))


@pytest.fixture
async def thinker(serve: Serve, model_dir: ModelDirectory) -> RunningServer:
    return await serve(model_dir({"serving.properties": PROPERTIES + THINKING, "template.jinja": TOOLED}))


async def message(server: RunningServer, said: str, **fields: Any) -> dict[str, Any]:
    """Return the message, which is the same whole and streamed."""
    server.scripted.enqueue(Script(said), Script(said))
    whole: dict[str, Any] = (await chat(server, **fields, **WHOLE)).json()["message"]
    lines = (await chat(server, **fields)).json_lines()
    parts = [line["message"] for line in lines]
    assert all(line["message"]["role"] == "assistant" for line in lines)
    joined = {"role": "assistant", "content": "".join(part["content"] for part in parts)}
    if thinking := "".join(part.get("thinking", "") for part in parts):
        joined["thinking"] = thinking
    calls = [call for part in parts for call in part.get("tool_calls", ())]
    assert [call["function"] for call in calls] == [call["function"] for call in whole.get("tool_calls", ())]
    assert joined == {name: value for name, value in whole.items() if name != "tool_calls"}
    return whole


async def test_stream_is_the_default(server: RunningServer) -> None:
    answer = await chat(server)
    assert (answer.status, answer.content_type) == (200, "application/x-ndjson")
    *lines, last = [without_times(line) for line in answer.json_lines()]
    assert [line["message"] for line in lines] == [{"role": "assistant", "content": word} for word in WORDS]
    assert all(line["done"] is False for line in lines)
    assert (last["message"], last["done_reason"]) == ({"role": "assistant", "content": ""}, "stop")


async def test_whole(server: RunningServer) -> None:
    answer = await chat(server, options={"num_predict": 2}, **WHOLE)
    expected = {"model": "model", "message": {"role": "assistant", "content": "Deep Learning"}, "eval_count": 2}
    found = without_times(answer.json())
    assert {name: found[name] for name in expected} == expected
    assert (found["done"], found["done_reason"]) == (True, "length")


@pytest.mark.parametrize(("keep_alive", "reason"), [(None, "load"), (0, "unload")])
async def test_without_messages(server: RunningServer, keep_alive: int | None, reason: str) -> None:
    nothing: list[list[str] | None] = [[], None]
    for given in nothing:
        answer = await chat(server, messages=given, keep_alive=keep_alive)
        message = {"role": "assistant", "content": ""}
        expected = {"model": "model", "message": message, "done": True, "done_reason": reason}
        assert without_times(answer.json()) == expected


async def test_tool_call(server: RunningServer) -> None:
    found = await message(server, "Let me see.\n" + CALL + "\n" + CALL.replace("Paris", "Rome"), tools=[TOOL])
    assert found["content"].strip() == "Let me see."
    expected = [
        {"index": place, "name": "weather", "arguments": {"city": city}} for place, city in enumerate(["Paris", "Rome"])
    ]
    assert [call["function"] for call in found["tool_calls"]] == expected
    assert len({call["id"] for call in found["tool_calls"]}) == 2
    assert server.scripted.history[-1].prompt.startswith("tool: weather\n")


async def test_tool_call_with_more_digits_than_64_bits_hold(server: RunningServer) -> None:
    for stream in (False, True):
        server.scripted.enqueue(Script(CALL.replace('"Paris"', "1234567890123456789012")))
        answer = await chat(server, tools=[TOOL], stream=stream)
        assert (answer.status, b'{"city":1234567890123456789012}' in answer.body) == (200, True), answer.body


async def test_call_that_is_cut_off_is_text(server: RunningServer) -> None:
    found = await message(server, CUT, tools=[TOOL])
    assert "tool_calls" not in found
    assert found["content"] == '{"name": "weather", "arguments": {"city": "Pa'


async def test_tool_call_ends_as_any_answer(server: RunningServer) -> None:
    server.scripted.enqueue(Script(CALL))
    assert (await chat(server, tools=[TOOL])).json_lines()[-1]["done_reason"] == "stop"


async def test_past_calls_and_their_results(server: RunningServer) -> None:
    call = {"function": {"name": "weather", "arguments": {"city": "Paris"}}}
    result = {"role": "tool", "tool_name": "weather", "content": "sunny"}
    past = [*MESSAGES, {"role": "assistant", "thinking": "Well.", "tool_calls": [call]}, result]
    await chat(server, messages=past, tools=[TOOL])
    _, assistant, tool = server.scripted.history[-1].prompt.splitlines()[1:4]
    assert '"arguments": {"city": "Paris"}' in assistant
    assert '"reasoning_content": "Well."' in assistant
    assert '"id": "call00000"' in assistant
    assert tool == '{"role": "tool", "content": "sunny", "name": "weather", "tool_call_id": "call00000"}'


async def test_answer_that_is_begun(plain: RunningServer) -> None:
    await chat(plain, messages=[*MESSAGES, {"role": "Assistant", "content": "Deep"}])
    assert plain.scripted.history[-1].prompt == "user: What is Deep Learning?\nassistant: Deep"
    await chat(plain, messages=[*MESSAGES, {"role": "assistant", "content": ""}])
    assert plain.scripted.history[-1].prompt == "user: What is Deep Learning?\nassistant: \nassistant:"
    call = {"function": {"name": "weather", "arguments": {"city": "Paris"}}}
    await chat(plain, messages=[*MESSAGES, {"role": "assistant", "content": "Deep", "tool_calls": [call]}])
    assert plain.scripted.history[-1].prompt == "user: What is Deep Learning?\nassistant: Deep\nassistant:"


@pytest.mark.parametrize(
    ("think", "told"),
    [(None, "True "), (True, "True "), (False, "False "), ("low", "True low"), ("high", "True high")],
)
async def test_think(thinker: RunningServer, think: object, told: str) -> None:
    await chat(thinker, think=think)
    assert thinker.scripted.history[-1].prompt.endswith(f"think: {told}")


@pytest.mark.parametrize("think", ["true", 1, "lowest"])
async def test_think_is_neither_truth_nor_effort(thinker: RunningServer, think: object) -> None:
    answer = await thinker.post("/api/chat", {"messages": MESSAGES, "think": think})
    assert (answer.status, answer.json()["error"]) == (
        400,
        f"`think` must be true, false, or one of low, medium, high, max. Given: {think!r}",
    )


async def test_thinking(thinker: RunningServer) -> None:
    expected = {"role": "assistant", "content": "Yes, it is.", "thinking": "\nLet me see.\n"}
    found = await message(thinker, THOUGHT)
    assert {name: text.strip("\n") for name, text in found.items()} == {
        name: text.strip("\n") for name, text in expected.items()
    }
    hidden = await message(thinker, THOUGHT, think=False)
    assert "thinking" not in hidden


async def test_thinking_about_a_prompt(thinker: RunningServer) -> None:
    thinker.scripted.enqueue(Script(THOUGHT), Script(THOUGHT), Script(THOUGHT))
    templated = await thinker.post("/api/generate", {"prompt": "Hi", **WHOLE})
    raw = await thinker.post("/api/generate", {"prompt": "Hi", "raw": True, **WHOLE})
    asked = await thinker.post("/api/generate", {"prompt": "Hi", "raw": True, "think": True, **WHOLE})
    for answer in (templated, asked):
        assert (answer.json()["thinking"].strip(), answer.json()["response"].strip()) == ("Let me see.", "Yes, it is.")
    assert (raw.json()["response"], "thinking" in raw.json()) == (THOUGHT, False)


async def test_format(server: RunningServer) -> None:
    await chat(server, format={"type": "array"})
    assert parameters(server).guided_json == {"type": "array"}


async def test_log_probs(server: RunningServer) -> None:
    found = (await chat(server, logprobs=True, top_logprobs=1, **WHOLE)).json()["logprobs"]
    assert [place["token"] for place in found] == WORDS
    assert found[0]["top_logprobs"] == [{"token": "Deep", "logprob": -0.25, "bytes": list(b"Deep")}]


async def test_log_probs_of_tokens_without_a_text_of_their_own(server: RunningServer) -> None:
    server.scripted.enqueue(Script(CALL))
    lines = (await chat(server, tools=[TOOL], logprobs=True)).json_lines()
    tokens = [place["token"] for line in lines for place in line.get("logprobs", ())]
    assert "".join(tokens) == CALL


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"messages": [{"role": ""}]}, "`messages.0.role` must have at least 1 character"),
        ({"messages": "Hi"}, "`messages` must be a valid list. Given: 'Hi'"),
        (
            {"messages": [{"role": "user", "content": "Hi", "images": ["x"]}]},
            "`messages.0.images.0` is an image, but this model accepts only text on the scripted backend",
        ),
        ({"tools": [{"type": "retrieval"}]}, "`tools.0.type` must be 'function'"),
        (
            {"tools": [{"function": {"name": "f", "parameters": {"type": "text"}}}]},
            "`tools.0.function.parameters` is not a valid JSON schema",
        ),
        ({"think": "hard"}, "`think"),
        ({"think": "low"}, '"model" does not support thinking'),
    ],
)
async def test_refused(server: RunningServer, fields: dict[str, Any], message: str) -> None:
    answer = await chat(server, **fields)
    assert answer.status == 400
    assert answer.json()["error"].startswith(message)


async def test_model_without_tools(serve: Serve, model_dir: ModelDirectory) -> None:
    template = "option.chat_template={% for message in messages %}{{ message.content }}{% endfor %}\n"
    server = await serve(model_dir({"serving.properties": SCRIPTED + template}))
    answer = await chat(server, tools=[TOOL])
    assert (answer.status, answer.json()["error"].partition(":")[0]) == (400, '"model" does not support tools')


async def test_images(serve: Serve, model_dir: ModelDirectory) -> None:
    directory = model_dir({"serving.properties": "option.rolling_batch=seeing\noption.max_images=2\n"})
    server = await serve(directory, plugins=[SeeingPlugin()])
    image = b64encode(b"image").decode()
    for path, body, place in (
        ("/api/chat", {"messages": [{"role": "user", "content": "What?", "images": [image]}]}, "messages.0.images.0"),
        ("/api/generate", {"prompt": "What?", "images": [image]}, "images.0"),
    ):
        answer = await server.post(path, body | WHOLE)
        assert answer.status == 200, answer.body
        latest = server.scripted.history[-1]
        assert latest.prompt == "user: (image 1)\nWhat?\nassistant:"
        assert latest.image_prompt is not None
        assert latest.prompt_ids[0] == server.scripted.tokenizer.encode(f"({place})")[0]
        broken = await server.post(path, body | {"images": ["?"], "messages": [MESSAGES[0] | {"images": ["?"]}]})
        assert (
            broken.status,
            f"`{place}` must be an http or https URL, or an image in base64" in broken.json()["error"],
        ) == (400, True)


async def test_same_text_as_whole(server: RunningServer) -> None:
    assert (await message(server, TEXT))["content"] == TEXT


def dialect(prompt: str, given: dict[str, Any], form: str) -> tuple[str, object]:
    names = {"stop_sequences": "stop", "max_new_tokens": "num_predict"}
    options = {names.get(name, name): value for name, value in given.items()}
    messages = [{"role": "user", "content": prompt}]
    return "/api/chat", {
        "model": "model",
        "messages": messages,
        "options": options,
        **({} if form == "stream" else WHOLE),
    }


@pytest.fixture
async def plain(serve: Serve, model_dir: ModelDirectory) -> RunningServer:
    return await serve(model_dir({"serving.properties": SCRIPTED}))


@pytest.mark.parametrize("case", golden.CASES)
@pytest.mark.parametrize("form", golden.FORMS)
async def test_golden_transcript(plain: RunningServer, form: str, case: str) -> None:
    await golden.replay(plain, "ollama_chat", dialect, form, case)
