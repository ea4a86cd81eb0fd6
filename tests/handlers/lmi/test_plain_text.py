"""Bodies of plain text on LMI's routes: the prompt itself, whatever it looks like."""

import pytest

from tests.conftest import SCRIPTED, ModelDirectory, RunningServer, Serve

TEXT = "Deep Learning is a really cool field."
PLAIN = {"Content-Type": "text/plain; charset=utf-8"}
ROUTES = ["/invocations", "/predictions/model", "/endpoints/mine/invocations"]
FORMATTER = """\
from djl_python.input_parser import input_formatter


@input_formatter
def read(payload: dict, **kwargs) -> dict:
    return {"inputs": "read: " + payload["inputs"][0]}
"""


@pytest.fixture
async def server(serve: Serve, model_dir: ModelDirectory) -> RunningServer:
    return await serve(model_dir({"serving.properties": SCRIPTED}))


def prompt(server: RunningServer) -> str:
    """Return the last prompt that the backend received."""
    return server.scripted.history[-1].prompt


@pytest.mark.parametrize("path", ROUTES)
@pytest.mark.parametrize(
    "text",
    [
        "Gr\u00fc\u00df mich",
        '{"inputs": "not the prompt", "adapters": "french"}',
        '{"inputs": "not the prompt", "parameters": {"adapter_id": "french"}}',
    ],
)
async def test_body_is_the_prompt(server: RunningServer, path: str, text: str) -> None:
    answer = await server.post(path, data=text.encode(), headers=PLAIN)
    assert (answer.status, answer.content_type, answer.json()) == (200, "application/json", {"generated_text": TEXT})
    assert prompt(server) == text


async def test_body_is_the_prompt_of_an_event_stream(server: RunningServer) -> None:
    answer = await server.post("/endpoints/mine/invocations-response-stream", data=b"Hello", headers=PLAIN)
    assert (answer.status, answer.content_type) == (200, "application/vnd.amazon.eventstream")
    assert prompt(server) == "Hello"


async def test_stream(serve: Serve, model_dir: ModelDirectory) -> None:
    server = await serve(model_dir({"serving.properties": SCRIPTED + "option.enable_streaming=true\n"}))
    answer = await server.post("/invocations", data=b"Hey", headers=PLAIN)
    assert (answer.content_type, len(answer.json_lines())) == ("application/jsonlines", 7)


@pytest.mark.parametrize(
    ("body", "message"),
    [(b"", "`inputs` must have at least 1 character. Given: ''"), (b"\xff", "the body is not valid utf-8: ")],
)
async def test_errors(server: RunningServer, body: bytes, message: str) -> None:
    answer = await server.post("/invocations", data=body, headers=PLAIN)
    assert answer.status == 424
    assert answer.json()["error"].startswith(message)


async def test_input_formatter_gets_it_as_lmi_decodes_it(serve: Serve, model_dir: ModelDirectory) -> None:
    server = await serve(model_dir({"serving.properties": SCRIPTED, "model.py": FORMATTER}))
    answer = await server.post("/invocations", data=b"Hey", headers=PLAIN)
    assert answer.status == 200, answer.body
    assert prompt(server) == "read: Hey"


async def test_several_models(serve: Serve, model_dir: ModelDirectory) -> None:
    for name in ("one", "two"):
        store = model_dir({"serving.properties": SCRIPTED}, name=f"store/{name}").parent
    server = await serve(store)
    unnamed = await server.post("/invocations", data=b"Hey", headers=PLAIN)
    message = "several models are served; name one of: one, two"
    assert (unnamed.status, unnamed.json()["error"]) == (404, message)
    named = await server.post("/invocations", data=b"Hey", headers={**PLAIN, "X-Amzn-SageMaker-Target-Model": "two"})
    assert named.json() == {"generated_text": TEXT}
