"""The OpenAPI document covers every route and tells the truth, and the page shows it without any outside address."""

import asyncio
import re
from typing import Any

import pytest
import schemathesis
from aiohttp import web
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis.core.result import Ok

from lmi_core.plugins.loading import load_plugins
from lmi_handlers.http.application import create_application
from tests.conftest import SCRIPTED, ModelDirectory, RunningServer, Serve

EXAMPLES_PER_OPERATION = 10
SECONDS_PER_REQUEST = 5
REFUSED = {
    "/v1/abort_request": 404,
    "/v1/embeddings": 404,
    "/models/model/adapters": 400,
    "/models/model/adapters/1/update": 404,
    **dict.fromkeys(("/api/push", "/api/create", "/api/copy"), 403),
    **dict.fromkeys(("/api/embed", "/api/embeddings"), 400),  # the model generates only
    "/endpoints/mine/async-invocations": 400,
}

WITHOUT_BODY = {"/v1/responses/{response_id}/cancel"}


@pytest.fixture
async def server(serve: Serve, model_dir: ModelDirectory) -> RunningServer:
    return await serve(model_dir({"serving.properties": SCRIPTED}))


@pytest.fixture
async def document(server: RunningServer) -> dict[str, Any]:
    answer = await server.get("/openapi.json")
    assert (answer.status, answer.content_type) == (200, "application/json")
    found: dict[str, Any] = answer.json()
    return found


def operations(document: dict[str, Any]) -> list[tuple[str, str, dict[str, Any]]]:
    return [
        (method, path, operation)
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
    ]


def payloads(document: dict[str, Any], operation: dict[str, Any]) -> list[dict[str, Any]]:
    """The schemas of the forms that the operation's body may have."""
    if "requestBody" not in operation:
        return []
    schema = operation["requestBody"]["content"]["application/json"]["schema"]
    names = [form["$ref"].rpartition("/")[2] for form in schema.get("anyOf", [schema])]
    return [document["components"]["schemas"][name] for name in names]


def test_every_route_is_in_it(server: RunningServer, document: dict[str, Any]) -> None:
    application = create_application(server.dispatcher, load_plugins().handlers)
    served = {
        (route.method.lower(), route.resource.canonical)
        for route in application.router.routes()
        if isinstance(route.resource, web.Resource) and route.method not in ("HEAD", "*")
        if route.resource.canonical == "/" or not route.resource.canonical.endswith("/")  # the same with a slash
    }
    assert {(method, path) for method, path, _ in operations(document)} == served


def test_every_operation_has_a_summary_and_an_id_of_its_own(document: dict[str, Any]) -> None:
    found = [operation for _, _, operation in operations(document)]
    assert all(operation["summary"] for operation in found)
    assert len({operation["operationId"] for operation in found}) == len(found)


def test_every_body_has_an_example(document: dict[str, Any]) -> None:
    for method, path, operation in operations(document):
        forms = payloads(document, operation)
        assert bool(forms) == (method == "post" and path not in WITHOUT_BODY), path
        assert all(form["examples"] for form in forms), path


def test_references_lead_somewhere(server: RunningServer, document: dict[str, Any]) -> None:
    references = set(re.findall(r"'#/components/schemas/(\w+)'", str(document)))
    assert references
    assert references <= document["components"]["schemas"].keys()


async def test_every_example_is_answered(server: RunningServer, document: dict[str, Any]) -> None:
    await server.post("/invocations", {"inputs": "words for the tokenizer to decode"})
    for _, path, operation in operations(document):
        for form in payloads(document, operation):
            for example in form["examples"]:
                await answers(server, path, example)


async def test_examples_of_embeddings_are_answered(
    serve: Serve, model_dir: ModelDirectory, document: dict[str, Any]
) -> None:
    properties = SCRIPTED + "option.task=text-embedding\noption.chat_template={{ messages[0].content }}\n"
    server = await serve(model_dir({"serving.properties": properties}, name="vectors"))
    for path, name in (
        ("/v1/embeddings", "EmbeddingsRequest"),
        ("/v1/embeddings", "EmbeddingsChat"),
        ("/invocations", "EmbeddingPayload"),
    ):
        for example in document["components"]["schemas"][name]["examples"]:
            answer = await server.post(path, example)
            assert answer.status == 200, (path, example, answer.body)


async def answers(server: RunningServer, path: str, example: object) -> None:
    """Check that an example is answered, or refused because its request or adapter does not exist."""
    for name, value in {"model": "model", "version": "1", "endpoint": "mine", "name": "1"}.items():
        path = path.replace(f"{{{name}}}", value)
    answer = await server.post(path, example)
    assert answer.status == REFUSED.get(path, 200), (path, example, answer.body)


async def test_plain_text_is_taken_where_it_says_so(server: RunningServer, document: dict[str, Any]) -> None:
    for _, path, operation in operations(document):
        content = operation.get("requestBody", {"content": {}})["content"]
        if not content or path.startswith("/models"):
            continue
        path = path.replace("{model}", "model").replace("{version}", "1").replace("{endpoint}", "mine")
        answer = await server.post(path, data=b"just a text", headers={"Content-Type": "text/plain"})
        assert (answer.status == 200) == ("text/plain" in content), path


def test_fields_that_are_ignored_are_allowed(document: dict[str, Any]) -> None:
    schemas = document["components"]["schemas"]
    for name in (
        "RollingBatchPayload",
        "DynamicBatchPayload",
        "TgiPayload",
        "TgiParameters",
        "HappyVllmPayload",
        "OllamaChat",
    ):
        assert schemas[name]["additionalProperties"] is True


async def test_page(server: RunningServer) -> None:
    answer = await server.get("/docs")
    assert (answer.status, answer.content_type) == (200, "text/html; charset=utf-8")
    assert b'fetch("openapi.json")' in answer.body
    assert not re.search(rb"https?:|src=|@import|url\(", answer.body)
    assert "default-src 'none'" in answer.headers["Content-Security-Policy"]


@pytest.mark.slow
async def test_whatever_the_document_allows_is_answered(server: RunningServer, document: dict[str, Any]) -> None:
    await asyncio.to_thread(fuzz, document, server.server.url)


def fuzz(document: dict[str, Any], url: str) -> None:
    """Requests made from the schemas, and against them: none is an internal error, and none hangs."""
    schema = schemathesis.openapi.from_dict(document)
    tried = 0
    for result in schema.get_all_operations():
        assert isinstance(result, Ok), result
        tried += 1
        _fuzz_operation(result.ok(), url)
    assert tried == len(operations(document))


def _fuzz_operation(operation: Any, url: str) -> None:
    @settings(
        max_examples=EXAMPLES_PER_OPERATION,
        phases=[Phase.explicit, Phase.generate],
        deadline=None,
        database=None,
        derandomize=True,
        suppress_health_check=list(HealthCheck),
    )
    @given(case=operation.as_strategy())
    def requests_are_answered(case: Any) -> None:
        if "model" in (case.path_parameters or {}):
            case.path_parameters["model"] = "model"
        response = case.call(base_url=url, timeout=SECONDS_PER_REQUEST)
        assert response.status_code < 500, (case.method, case.path, case.body, response.text)

    requests_are_answered()
