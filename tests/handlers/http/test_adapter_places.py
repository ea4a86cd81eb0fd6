"""An adapter that is named beside the body, on every route that generates."""

from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from lmi_core.plugins.loading import load_plugins
from tests.conftest import SCRIPTED, ModelDirectory, RunningServer, Serve

FORMATTER = """\
from djl_python.output_formatter import output_formatter

@output_formatter
def f(response_data: dict) -> dict:
    return {"by": "NAME"}
"""

INPUTS = {"inputs": "hi"}
CHAT = {"messages": [{"role": "user", "content": "hi"}]}
PROMPT = {"prompt": "hi", "model": "model"}
BODIES: dict[str, dict[str, Any]] = {
    "/invocations": INPUTS,
    "/predictions/model": INPUTS,
    "/predictions/model/1": INPUTS,
    "/endpoints/any/invocations": INPUTS,
    "/endpoints/any/invocations-response-stream": INPUTS,
    "/v1/chat/completions": CHAT,
    "/v1/chat/completions/batch": {"messages": [CHAT["messages"]]},
    "/v1/completions": PROMPT,
    "/v1/messages": CHAT | {"max_tokens": 9},
    "/api/generate": PROMPT,
    "/api/chat": CHAT,
    "/v1/responses": {"input": "hi"},
    "/v1/generate": PROMPT,
    "/v1/generate_stream": PROMPT,
    "/": INPUTS,
    "/generate": INPUTS,
    "/generate_stream": INPUTS,
    "/models/model/invoke": {"inputs": "hi"},
    "/v2/models/model/generate": {"text_input": "hi"},
    "/v2/models/model/generate_stream": {"text_input": "hi"},
    "/v2/models/model/versions/1/generate": {"text_input": "hi"},
    "/v2/models/model/versions/1/generate_stream": {"text_input": "hi"},
}
LMI_ROUTES = {path for path in BODIES if path.startswith(("/invocations", "/predictions", "/endpoints", "/models"))}
SAME_ID = {"x-request-id": "same"}  # which some errors hold
# Neither tensors nor embeddings nor scores are text that an adapter's formatter could write.
WITHOUT_TEXT = ("/infer", "/embeddings", "/embed", "/pooling", "/rerank", "/score")
PLACES = [
    ("", {"X-Amzn-SageMaker-Adapter-Identifier": "NAME"}),
    ("?adapter=NAME", {}),
    ("", {"X-Amzn-SageMaker-Custom-Attributes": "trace=1;adapter=NAME"}),
]


@pytest.fixture
def directory(model_dir: ModelDirectory) -> Path:
    template = "{% for message in messages %}{{ message.content }}{% endfor %}"
    files = {"serving.properties": f"{SCRIPTED}option.chat_template={template}\n"}
    return model_dir(files | {"adapters/french/model.py": FORMATTER.replace("NAME", "french")})


@pytest_asyncio.fixture
async def server(serve: Serve, directory: Path) -> RunningServer:
    return await serve(directory)


def test_all_generating_routes_are_looked_at() -> None:
    generating = {
        route.path.replace("{model}", "model").replace("{version}", "1").replace("{endpoint}", "any")
        for handler in load_plugins().handlers
        for route in handler.routes
        if route.answer is None and not route.path.endswith(WITHOUT_TEXT)
    }
    assert generating == BODIES.keys()


async def test_every_place_on_every_route(server: RunningServer) -> None:
    for path, body in BODIES.items():
        assert b'"by"' not in (await server.post(path, body)).body, path
        for query, headers in PLACES:
            named = {name: value.replace("NAME", "french") for name, value in headers.items()}
            answer = await server.post(path + query.replace("NAME", "french"), body, headers=named)
            assert answer.status == 200, (path, query, headers, answer.body)
            assert b'"by":"french"' in answer.body.replace(b'": "', b'":"'), (path, query, headers, answer.body)


async def test_unknown_name_is_the_same_error_as_in_the_body(server: RunningServer) -> None:
    for path, body in BODIES.items():
        in_body = await server.post(path, body | {"adapters": "frensh"}, headers=SAME_ID)
        assert in_body.status == (424 if path in LMI_ROUTES else 404), (path, in_body.body)
        assert b"there is no adapter `frensh`. Did you mean `french`? Known: french" in in_body.body
        for query, headers in PLACES:
            named = {name: value.replace("NAME", "frensh") for name, value in headers.items()}
            answer = await server.post(path + query.replace("NAME", "frensh"), body, headers=named | SAME_ID)
            assert (answer.status, answer.body) == (in_body.status, in_body.body)


async def test_places_that_differ(server: RunningServer) -> None:
    answer = await server.post("/invocations?adapter=french", INPUTS | {"adapters": "german"})
    message = "the body's `adapters` and the query's `adapter` name different adapters: 'german' and 'french'. Name one"
    assert (answer.status, answer.json()) == (424, {"error": message, "code": 424})


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/completions", "/v1/messages"])
async def test_adapter_as_the_model_s_name(server: RunningServer, path: str) -> None:
    body = BODIES[path] | {"model": "french"}
    assert (await server.post(path, body)).json()["by"] == "french"
    assert (await server.post(path, body | {"adapters": ["french"]})).json()["by"] == "french"
    differ = await server.post(path, body | {"adapters": "german"})
    message = "`model` and `adapters` name different adapters: 'french' and 'german'"
    assert (differ.status, differ.json()["error"]["message"]) == (400, message)
    unknown = await server.post(path, body | {"model": "frensh"})
    assert unknown.status == 404
    assert unknown.json()["error"]["message"].startswith("model `frensh` is not served. Did you mean `french`?")


async def test_inference_component_and_another_place(server: RunningServer) -> None:
    path, component = "/endpoints/any/invocations", {"X-Amzn-SageMaker-Inference-Component": "french"}
    assert (await server.post(path, INPUTS | {"adapters": "french"}, headers=component)).json() == {"by": "french"}
    header = component | {"X-Amzn-SageMaker-Adapter-Identifier": "german"}
    answer = await server.post(path, INPUTS, headers=header)
    assert answer.status == 424
    assert "name different adapters: 'german' and 'french'" in answer.json()["Message"]
