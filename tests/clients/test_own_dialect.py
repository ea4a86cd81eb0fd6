"""The dialect in examples/own_dialect, over HTTP and with Ollama's own client; it imports nothing of ours but `lmi`."""

import ast
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from ollama import AsyncClient, ResponseError

from lmi import Call, Route, hookimpl
from lmi.testing import RunningServer, Script, Serve, import_file
from tests.conftest import SCRIPTED, ModelDirectory

PLUGIN = Path(__file__).parents[2] / "examples" / "own_dialect" / "plugins" / "my_ollama.py"
PROPERTIES = f"{SCRIPTED}option.tool_call_parser=hermes\noption.reasoning_parser=qwen3\n"
TEXT = "Deep Learning is a really cool field."
QUESTION = [{"role": "user", "content": "What is it?"}]
CALL = '<tool_call>\n{"name": "weather", "arguments": {"city": "Paris"}}\n</tool_call>'


@pytest.fixture
async def server(serve: Serve, model_dir: ModelDirectory) -> RunningServer:
    return await serve(model_dir({"serving.properties": PROPERTIES}), plugins=[import_file(PLUGIN)])


@pytest.fixture
async def client(server: RunningServer) -> AsyncIterator[AsyncClient]:
    async with AsyncClient(f"{server.server.url}/my-ollama") as client:
        yield client


def weather(city: str) -> str:
    """Tell the weather.

    Args:
        city: The city.
    """
    return f"sunny in {city}"


def test_it_imports_nothing_of_ours_but_lmi() -> None:
    imports = [node for node in ast.walk(ast.parse(PLUGIN.read_text())) if isinstance(node, ast.ImportFrom)]
    assert {str(node.module) for node in imports if str(node.module).startswith("lmi")} == {"lmi"}


async def test_chat(client: AsyncClient, server: RunningServer) -> None:
    answer = await client.chat("model:latest", QUESTION)
    assert (answer.message.content, answer.done_reason, answer.prompt_eval_count, answer.eval_count) == (
        TEXT,
        "stop",
        len(server.scripted.history[0].prompt_ids),
        7,
    )
    assert server.scripted.history[0].prompt == "user: What is it?\nassistant:"


async def test_stream(client: AsyncClient) -> None:
    parts = [part async for part in await client.chat("model", QUESTION, stream=True, options={"num_predict": 2})]
    assert [(part.message.content, part.done) for part in parts] == [("Deep", False), (" Learning", False), ("", True)]
    assert (parts[-1].done_reason, parts[-1].eval_count) == ("length", 2)


async def test_parameters(client: AsyncClient, server: RunningServer) -> None:
    options: dict[str, Any] = {"stop": [" is"], "temperature": 0.5, "seed": 7}
    answer = await client.chat("model", QUESTION, options=options)
    assert answer.message.content == "Deep Learning"
    parameters = server.scripted.history[0].parameters
    assert (parameters.temperature, parameters.seed, parameters.stop_sequences) == (0.5, 7, [" is"])


@pytest.mark.parametrize("stream", [True, False])
async def test_thinking_and_tools(client: AsyncClient, server: RunningServer, stream: bool) -> None:
    server.scripted.enqueue(Script(f"<think>\nLet me see.\n</think>\n\nSo: {CALL}"))
    if stream:
        parts = [part async for part in await client.chat("model", QUESTION, tools=[weather], stream=True)]
    else:
        parts = [await client.chat("model", QUESTION, tools=[weather])]
    assert "".join(part.message.thinking or "" for part in parts).strip() == "Let me see."
    assert "".join(part.message.content or "" for part in parts).strip() == "So:"
    (call,) = parts[-1].message.tool_calls or []
    assert (call.function.name, call.function.arguments) == ("weather", {"city": "Paris"})
    assert server.scripted.history[0].prompt.startswith("tool: weather\nuser: What is it?\n")


async def test_messages_of_a_tool_are_taken_back(client: AsyncClient, server: RunningServer) -> None:
    call = {"function": {"name": "weather", "arguments": {"city": "Paris"}}}
    called = {"role": "assistant", "content": "", "tool_calls": [call]}
    await client.chat("model", [*QUESTION, called, {"role": "tool", "content": "sunny"}], tools=[weather])
    assert "tool: sunny\n" in server.scripted.history[0].prompt


async def test_models(client: AsyncClient) -> None:
    (listed,) = (await client.list()).models
    assert listed.model == "model"
    assert listed.details is not None
    assert listed.details.family == "scripted"


@pytest.mark.parametrize(
    ("model", "options", "status", "error"),
    [
        ("other", {}, 404, "model `other` is not served. Served: model"),
        ("model", {"num_predict": 0}, 400, "`options.num_predict` must be greater than or equal to 1. Given: 0"),
        ("model", {"stop": "x"}, 400, "`stop` must be a valid list. Given: 'x'"),
    ],
)
async def test_errors(client: AsyncClient, model: str, options: dict[str, Any], status: int, error: str) -> None:
    with pytest.raises(ResponseError) as failure:
        await client.chat(model, QUESTION, options=options)
    assert (failure.value.status_code, failure.value.error) == (status, error)


async def test_error_within_a_stream(client: AsyncClient, server: RunningServer) -> None:
    server.scripted.enqueue(Script("Deep", error="the engine fell over"))
    with pytest.raises(ResponseError, match="the engine fell over"):
        _ = [part async for part in await client.chat("model", QUESTION, stream=True)]


async def test_a_name_that_is_no_text_is_an_error_of_the_request(serve: Serve, model_dir: ModelDirectory) -> None:
    class Unchecked(import_file(PLUGIN).MyOllamaHandler):  # type: ignore[misc]  # made when the test runs
        name = "unchecked"
        routes = (Route("/unchecked"),)

        def model_name_in_body(self, call: Call) -> Any:
            return call.json_object()["model"]

    class Plugin:
        @hookimpl
        def lmi_register_handlers(self, register: Callable[[Any], None]) -> None:
            register(Unchecked)

    for name in ("one", "two"):
        store = model_dir({"serving.properties": SCRIPTED}, name=f"store/{name}").parent
    server = await serve(store, plugins=[Plugin()])
    for wrong in (3, ["one"]):
        answer = await server.post("/unchecked", {"model": wrong, "messages": QUESTION})
        assert (answer.status, answer.json()["error"]) == (
            400,
            f"the name of the model must be a string. Given: {wrong}",
        )


async def test_unknown_fields_are_listed(server: RunningServer) -> None:
    payload = {"model": "model", "messages": QUESTION, "mood": "good", "options": {"mirostat": 1}, "stream": False}
    answer = await server.post("/my-ollama/api/chat", payload)
    assert answer.status == 200
    assert answer.headers["X-Lmi-Ignored-Parameters"] == "mood, options.mirostat"
