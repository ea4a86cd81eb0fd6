"""The OpenAPI document covers every route and tells the truth, and the page shows it without any outside address."""

import asyncio
import re
from typing import Any

import pytest
import schemathesis
from aiohttp import web
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis import GenerationMode
from schemathesis.core.result import Ok

from lmi_core.calls.answer_form import JSON
from lmi_core.plugins.loading import load_plugins
from lmi_handlers.http.application import create_application
from tests.conftest import SCRIPTED, ModelDirectory, RunningServer, Serve

EXAMPLES_PER_BODY = 4  # to make one takes a tenth of a second
EXAMPLES_PER_FURTHER_ROUTE = 1  # with the same body
SECONDS_PER_REQUEST = 5
REFUSED = {
    "/v1/abort_request": 404,
    "/v1/embeddings": 404,
    **dict.fromkeys(("/pooling", "/embed", "/v1/embed", "/v2/embed"), 404),
    **dict.fromkeys(("/rerank", "/v1/rerank", "/v2/rerank", "/score", "/v1/score"), 404),
    "/models": 404,
    **dict.fromkeys((f"/{kind}/model/1" for kind in ("models", "workflows")), 404),
    "/models/model/adapters": 400,
    "/models/model/adapters/1/update": 404,
    "/adapters": 400,
    "/adapters/1/update": 404,
    "/v1/load_lora_adapter": 400,
    "/v1/unload_lora_adapter": 404,
    **dict.fromkeys(("/api/push", "/api/create", "/api/copy"), 403),
    **dict.fromkeys(("/api/embed", "/api/embeddings"), 400),  # the model generates only
    "/endpoints/mine/async-invocations": 400,
}

TYPED = ("application/json", "application/jsonlines", "application/x-ndjson", "text/event-stream")
WITHOUT_CONTENT = {  # answered by status alone
    "/v2/health/live",
    "/v2/health/ready",
    "/v2/models/{model}/ready",
    "/v2/models/{model}/versions/{version}/ready",
}
WITHOUT_BODY = {"/v1/responses/{response_id}/cancel", "/server/logging"}


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
    names = [form["$ref"].rpartition("/")[2] for form in schema.get("anyOf", [schema]) if "$ref" in form]
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
    found = operations(document)
    assert [(method, path) for method, path, operation in found if not operation["summary"]] == []
    assert len({operation["operationId"] for _, _, operation in found}) == len(found)


def test_every_body_has_an_example(document: dict[str, Any]) -> None:
    for method, path, operation in operations(document):
        forms = payloads(document, operation)
        assert bool(forms) == (method in ("post", "put") and path not in WITHOUT_BODY), path
        assert all(form["examples"] for form in forms), path


def test_references_lead_somewhere(document: dict[str, Any]) -> None:
    references = set(re.findall(r"'\$ref': '#/([^']+)'", str(document)))
    assert {reference.split("/")[1] for reference in references} == {"schemas", "responses", "headers"}
    for reference in references:
        first, second, name = reference.split("/")
        assert name in document[first][second], reference


def test_names_of_schemas_are_those_of_clients_classes(document: dict[str, Any]) -> None:
    """Names of two classes that are the same would have their modules in them."""
    assert all(re.fullmatch(r"[A-Z][A-Za-z0-9]+", name) for name in document["components"]["schemas"])


def test_every_answer_and_error_has_a_type(document: dict[str, Any]) -> None:
    for method, path, operation in operations(document):
        responses = operation["responses"]
        contents = [responses[status].get("content") for status in responses if status.startswith("2")]
        assert all(contents), (method, path)
        typed = [media.get("schema") for content in contents for name, media in content.items() if name in TYPED]
        assert all(typed) or path in WITHOUT_CONTENT, (method, path)
        if operation["tags"] != ["server"]:
            error = document["components"]["responses"][responses["default"]["$ref"].rpartition("/")[2]]
            assert error["content"]["application/json"]["schema"], (method, path)


def test_forms_of_one_route_are_told_apart(document: dict[str, Any]) -> None:
    content = document["paths"]["/invocations"]["post"]["responses"]["200"]["content"]
    forms = content["application/json"]["schema"]["anyOf"]
    assert [form.get("title") or form["$ref"].rpartition("/")[2] for form in forms] == [
        "LmiAnswer",
        "LmiChatCompletion",
        "AsyncAnswer",
        "TextCompletion",
        "ChatCompletion",
        "With option.tgi_compat",
        "With dynamic batching",
        "The vector of a text",
        "The vectors of several texts",
        "SessionResult",
    ]
    assert {*content} == {"application/json", "application/jsonlines", "text/event-stream", "text/plain"}


async def test_chosen_formatter_adds_its_forms(serve: Serve, model_dir: ModelDirectory) -> None:
    chosen = await serve(model_dir({"serving.properties": SCRIPTED + "option.output_formatter=json\n"}))
    content = await chat_answers(chosen)
    assert "LmiChatCompletion" in str(content["application/json"])
    assert "*/*" not in content


async def test_a_models_own_code_may_answer_anything(serve: Serve, model_dir: ModelDirectory) -> None:
    script = (
        "from djl_python.output_formatter import output_formatter\n"
        "@output_formatter\n"
        "def mine(request_output):\n"
        "    return 'mine'\n"
    )
    own = await serve(model_dir({"serving.properties": SCRIPTED, "model.py": script}))
    content = await chat_answers(own)
    assert content["*/*"] == {}
    assert {"title": "The output of the model's own code"} in content["application/json"]["schema"]["anyOf"]


async def chat_answers(server: RunningServer) -> dict[str, Any]:
    document = (await server.get("/openapi.json")).json()
    found: dict[str, Any] = document["paths"]["/v1/chat/completions"]["post"]["responses"]["200"]["content"]
    return found


async def test_every_example_is_answered(server: RunningServer, document: dict[str, Any]) -> None:
    await server.post("/invocations", {"inputs": "words for the tokenizer to decode"})
    of_rerankers = document["components"]["schemas"]["PairsPayload"]["examples"]
    for method, path, operation in operations(document):
        for form in payloads(document, operation):
            for example in [each for each in form["examples"] if each not in of_rerankers]:
                await answers(server, method, path, example)


async def test_examples_of_embeddings_are_answered(
    serve: Serve, model_dir: ModelDirectory, document: dict[str, Any]
) -> None:
    properties = SCRIPTED + "option.task=text-embedding\noption.chat_template={{ messages[0].content }}\n"
    server = await serve(model_dir({"serving.properties": properties}, name="vectors"))
    for path, name in (
        ("/v1/embeddings", "EmbeddingsRequest"),
        ("/v1/embeddings", "EmbeddingsChat"),
        ("/invocations", "EmbeddingPayload"),
        ("/pooling", "PoolingRequest"),
        ("/pooling", "PoolingChat"),
        ("/v2/embed", "EmbedRequest"),
        ("/v1/embed", "EmbedRequest"),
        ("/embed", "TeiPayload"),
        ("/", "TeiPayload"),
    ):
        for example in document["components"]["schemas"][name]["examples"]:
            answer = await server.post(path, example)
            assert answer.status == 200, (path, example, answer.body)


async def test_examples_of_scores_are_answered(
    serve: Serve, model_dir: ModelDirectory, document: dict[str, Any]
) -> None:
    server = await serve(model_dir({"serving.properties": SCRIPTED + "option.task=reranking\n"}, name="scores"))
    for path, name in (
        ("/rerank", "RerankRequest"),
        ("/rerank", "TeiRerankRequest"),
        ("/score", "ScoreRequest"),
        ("/invocations", "PairsPayload"),
    ):
        for example in document["components"]["schemas"][name]["examples"]:
            answer = await server.post(path, example)
            assert answer.status == 200, (path, example, answer.body)


async def answers(server: RunningServer, method: str, path: str, example: object) -> None:
    """Check that an example is answered, or refused because its request or adapter does not exist."""
    for name, value in {"model": "model", "version": "1", "endpoint": "mine", "name": "1"}.items():
        path = path.replace(f"{{{name}}}", value)
    async with server.client.request(method, path, json=example) as answer:
        assert answer.status == REFUSED.get(path, 200), (path, example, await answer.read())


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
    assert b'src="pages/docs/main.js"' in answer.body
    assert not re.search(rb"https?:|@import|url\(", answer.body)
    assert "default-src 'self'" in answer.headers["Content-Security-Policy"]


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("/v1/chat/completions", "OpenAiError"),
        ("/v1/messages", "AnthropicError"),
        ("/generate", "TgiError"),
        ("/v2/models/{model}/generate", "PlainError"),
        ("/api/chat", "PlainError"),
    ],
)
async def test_routes_that_ask_for_a_key_say_how_they_refuse(document: dict[str, Any], path: str, name: str) -> None:
    for status in ("401", "429"):
        (_, _, kind, shared) = document["paths"][path]["post"]["responses"][status]["$ref"].split("/")
        schema = document["components"][kind][shared]["content"][JSON]["schema"]
        assert schema == {"$ref": f"#/components/schemas/{name}"}
    assert "401" not in document["paths"]["/ping"]["get"]["responses"]


@pytest.mark.slow
@pytest.mark.parametrize("mode", [GenerationMode.POSITIVE, GenerationMode.NEGATIVE], ids=["allowed", "refused"])
async def test_document_and_behaviour_agree(
    server: RunningServer, document: dict[str, Any], mode: GenerationMode
) -> None:
    await asyncio.to_thread(fuzz, document, server.server.url, mode)


def fuzz(document: dict[str, Any], url: str, mode: GenerationMode) -> None:
    """Check requests made from the schemas, or against them: the latter are refused, no error is internal, none hangs.

    What they are answered is checked as all answers are.
    """
    schema = schemathesis.openapi.from_dict(document)
    tried, bodies = 0, set[str]()
    for result in schema.get_all_operations():
        assert isinstance(result, Ok), result
        operation = result.ok()
        body = str(document["paths"][operation.path][operation.method].get("requestBody", operation.path))
        _fuzz_operation(operation, url, mode, EXAMPLES_PER_FURTHER_ROUTE if body in bodies else EXAMPLES_PER_BODY)
        tried += 1
        bodies.add(body)
    assert tried == len(operations(document))


def _fuzz_operation(operation: Any, url: str, mode: GenerationMode, examples: int) -> None:
    if mode is GenerationMode.NEGATIVE and not operation.body.items:
        return  # nothing to say against the schema: paths take any text

    @settings(
        max_examples=examples,
        phases=[Phase.explicit, Phase.generate],
        deadline=None,
        database=None,
        derandomize=True,
        suppress_health_check=list(HealthCheck),
    )
    @given(case=operation.as_strategy(generation_mode=mode))
    def requests_are_answered(case: Any) -> None:
        if "model" in (case.path_parameters or {}):
            case.path_parameters["model"] = "model"
        response = case.call(base_url=url, timeout=SECONDS_PER_REQUEST)
        assert response.status_code < 500, (case.method, case.path, case.body, response.text)
        if mode is GenerationMode.NEGATIVE and case.media_type == JSON:  # of plain text nothing is wrong
            assert response.status_code >= 400, (case.method, case.path, case.body, response.text)

    requests_are_answered()
