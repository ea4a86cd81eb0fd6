"""Scores over HTTP in the forms of vLLM, Jina, Cohere and TEI, on the scripted backend: a score counts tokens."""

import math
from operator import mul
from typing import Any

import pytest

from lmi_plugins.backends.scripted import MAX_LENGTH, ScriptedBackend
from tests.conftest import SCRIPTED, Answer, ModelDirectory, RunningServer, Serve
from tests.module_server import module_server

same_loop = pytest.mark.asyncio(loop_scope="module")  # as that of the server that tests share

DOCUMENTS = ["one", "one two three", {"text": "one two"}]


server = module_server(f"{SCRIPTED}option.task=reranking\n")


def message(answer: Answer, status: int = 400) -> str:
    assert answer.status == status, answer.body
    return str(answer.json()["error"]["message"])


@pytest.mark.parametrize("path", ["/rerank", "/v1/rerank", "/v2/rerank"])
@same_loop
async def test_rerank(server: RunningServer, path: str) -> None:
    body = {"model": "model", "query": "a b", "documents": DOCUMENTS, "use_activation": False, "top_n": 2}
    answer = await server.post(path, body, headers={"x-request-id": "mine"})
    assert answer.json() == {
        "id": "score-mine",
        "model": "model",
        "usage": {"prompt_tokens": 12, "total_tokens": 12},
        "results": [
            {"index": 1, "document": {"text": "one two three"}, "relevance_score": 5.0},
            {"index": 2, "document": {"text": "one two"}, "relevance_score": 4.0},
        ],
    }


@same_loop
async def test_fields_of_rerank(server: RunningServer) -> None:
    body = {"query": "a b", "documents": "one two three", "return_documents": False}
    assert (await server.post("/rerank", body)).json()["results"] == [
        {"index": 0, "relevance_score": pytest.approx(5 / MAX_LENGTH)}
    ]
    limits = {"use_activation": False, "max_tokens_per_query": 1, "max_tokens_per_doc": 2}
    assert (await server.post("/rerank", body | limits)).json()["results"][0]["relevance_score"] == 3
    nulls = dict.fromkeys((*limits, "top_n", "texts"))
    whole = await server.post("/rerank", body | nulls)
    assert whole.json()["results"][0]["relevance_score"] == pytest.approx(5 / MAX_LENGTH)
    cut = await server.post("/rerank", body | {"use_activation": False, "truncate_prompt_tokens": 4})
    assert cut.json()["results"][0]["relevance_score"] == 4
    everything = await server.post("/rerank", {"query": "a", "documents": DOCUMENTS, "top_n": 0})
    assert len(everything.json()["results"]) == 3


async def test_template(model_dir: ModelDirectory, serve: Serve) -> None:
    template = (
        "{{ instruction or 'Judge' }} "
        "{% for message in messages %}{{ message.role }} {{ message.content }} {% endfor %}"
        "{% if add_generation_prompt %}answer{% endif %}"
    )
    properties = f"{SCRIPTED}option.task=reranking\noption.chat_template={template}\n"
    server = await serve(model_dir({"serving.properties": properties}))
    body: dict[str, Any] = {"query": "a b", "documents": ["one", "one two"], "use_activation": False}
    fields: list[dict[str, Any]] = [
        {},
        {"instruction": "Judge this one"},
        {"chat_template_kwargs": {"instruction": "Judge this"}, "instruction": "a b c d"},
    ]
    scores = []
    for further in fields:
        answer = await server.post("/rerank", body | further)
        assert "x-lmi-ignored-parameters" not in answer.headers
        scores.append([result["relevance_score"] for result in answer.json()["results"]])
    assert scores == [[8, 7], [10, 9], [9, 8]]
    refused = await server.post("/rerank", body | {"chat_template_kwargs": {"messages": []}})
    assert "must contain only variables of the chat template, and `messages` is not one" in message(refused)
    pairs = await server.post("/invocations", {"text": "a b", "text_pair": "one"})
    assert pairs.json() == [pytest.approx(1 / (1 + math.exp(-7)))]


@same_loop
async def test_template_fields_without_template(server: RunningServer) -> None:
    body = {"query": "a b", "documents": ["one"], "instruction": "Judge", "use_activation": False}
    answer = await server.post("/rerank", body)
    assert answer.headers["x-lmi-ignored-parameters"] == "instruction"
    assert answer.json()["results"][0]["relevance_score"] == 3


async def test_strict_models_refuse_template_fields_without_template(model_dir: ModelDirectory, serve: Serve) -> None:
    properties = f"{SCRIPTED}option.task=reranking\noption.strict_parameters=true\n"
    server = await serve(model_dir({"serving.properties": properties}))
    answer = await server.post("/rerank", {"query": "a b", "documents": ["one"], "instruction": "Judge"})
    assert "`instruction` has no effect" in message(answer)


OF_CHATS = "{% for message in messages %}{% if message.role == 'user' %}{{ message.content }}{% endif %}{% endfor %}"
REFUSING = "{{ raise_exception('no user') }}"


@pytest.mark.parametrize("template", [OF_CHATS, REFUSING])
async def test_template_that_joins_no_pairs_is_left_out_with_a_warning(
    template: str, model_dir: ModelDirectory, serve: Serve, caplog: pytest.LogCaptureFixture
) -> None:
    properties = f"{SCRIPTED}option.task=reranking\noption.chat_template={template}\n"
    server = await serve(model_dir({"serving.properties": properties}))
    assert "option.chat_template is ignored: it does not write the texts of pairs" in caplog.text
    answer = await server.post("/rerank", {"query": "a b", "documents": ["one"], "use_activation": False})
    assert answer.json()["results"][0]["relevance_score"] == 3


async def test_texts_are_cut_before_a_template_joins_them(model_dir: ModelDirectory, serve: Serve) -> None:
    template = "{% for message in messages %}{{ message.content }} {% endfor %}"
    properties = f"{SCRIPTED}option.task=reranking\noption.chat_template={template}\n"
    server = await serve(model_dir({"serving.properties": properties}))
    body = {"query": "a b c d", "documents": ["one two three"], "use_activation": False}
    limits: list[dict[str, int]] = [{}, {"max_tokens_per_query": 1}, {"max_tokens_per_doc": 2}]
    answers = [await server.post("/rerank", body | each) for each in limits]
    whole, *cut = (answer.json()["results"][0]["relevance_score"] for answer in answers)
    assert [whole - tokens for tokens in cut] == [3, 1]


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ({"text_1": "a", "text_2": ["one", "one two"]}, [2, 3]),
        ({"text_1": ["a b", "a"], "text_2": ["one", "one"]}, [3, 2]),
        ({"text_1": "a", "text_2": "one"}, [2]),
        ({"queries": "a", "documents": ["one"]}, [2]),
        ({"queries": "a", "items": ["one"]}, [2]),
        ({"data_1": "a", "data_2": ["one"]}, [2]),
    ],
)
@same_loop
async def test_score(server: RunningServer, body: dict[str, Any], expected: list[int]) -> None:
    for path in ("/score", "/v1/score"):
        content = (await server.post(path, {**body, "use_activation": False, "request_id": "mine"})).json()
        assert content.pop("created") > 0
        assert content == {
            "id": "score-mine",
            "object": "list",
            "model": "model",
            "data": [{"index": index, "object": "score", "score": score} for index, score in enumerate(expected)],
            "usage": {"prompt_tokens": sum(expected), "total_tokens": sum(expected)},
        }


@same_loop
async def test_rerank_of_tei(server: RunningServer) -> None:
    body = {"query": "a b", "texts": ["one", "one two three"], "raw_scores": True, "return_text": True}
    assert (await server.post("/rerank", body)).json() == [
        {"index": 1, "text": "one two three", "score": 5.0},
        {"index": 0, "text": "one", "score": 3.0},
    ]
    body = {"query": "a b", "texts": ["one"], "truncate": True, "truncation_direction": "Left"}
    (result,) = (await server.post("/rerank", body)).json()
    assert result == {"index": 0, "score": pytest.approx(1 / (1 + math.exp(-3)))}


@pytest.mark.parametrize(
    ("path", "body", "reason"),
    [
        ("/rerank", {"query": "a"}, "`documents` is required"),
        ("/rerank", {"query": "a", "documents": []}, "`documents`"),
        ("/rerank", {"query": "a", "documents": [{"title": "b"}]}, "`documents.0`"),
        ("/rerank", {"query": "a", "documents": ["b"], "top_n": -1}, "`top_n`"),
        ("/rerank", {"query": "a", "texts": "b"}, "`texts`"),
        ("/v1/rerank", {"query": "a", "texts": ["b"]}, "`documents` is required"),
        ("/score", {"text_1": "a"}, "`text_1` and `text_2` are required"),
        ("/score", {"text_1": ["a", "b"], "text_2": ["c"]}, "must be equal, or the first must be 1. Given: 2 and 1"),
        ("/score", {"text_1": "a", "text_2": "b " * MAX_LENGTH}, "`text_2.0` must be at most"),
    ],
)
@same_loop
async def test_wrong_requests(server: RunningServer, path: str, body: dict[str, Any], reason: str) -> None:
    assert reason in message(await server.post(path, body))


@same_loop
async def test_other_routes_of_a_reranker(server: RunningServer) -> None:
    chat = {"messages": [{"role": "user", "content": "Hi"}]}
    for path, body in (
        ("/v1/embeddings", {"input": "a"}),
        ("/v1/chat/completions", chat),
        ("/v1/completions", {"prompt": "a"}),
    ):
        assert "model `model` is a reranker, which scores pairs of texts" in message(await server.post(path, body), 404)
    (card,) = (await server.get("/v1/models")).json()["data"]
    assert (card["capabilities"]["rerank"], card["capabilities"]["embeddings"]) == (True, False)
    assert (await server.get("/info")).json()["model_pipeline_tag"] == "text-ranking"


@pytest.mark.parametrize("task", ["text-generation", "text-embedding"])
async def test_models_that_score_nothing(task: str, model_dir: ModelDirectory, serve: Serve) -> None:
    directory = model_dir({"serving.properties": f"{SCRIPTED}option.task={task}\n"})
    other = await serve(directory)
    vllm, tei = {"query": "a", "documents": ["b"]}, {"query": "a", "texts": ["b"]}
    for body in (tei,) if task == "text-embedding" else (vllm, tei):
        assert "is not a reranker: scores need a model" in message(await other.post("/rerank", body), 404)


async def test_embedding_models_compare_vectors(model_dir: ModelDirectory, serve: Serve) -> None:
    embedding = await serve(model_dir({"serving.properties": f"{SCRIPTED}option.task=text-embedding\n"}))
    backend = embedding.model.backend
    assert isinstance(backend, ScriptedBackend)
    texts = ["a b", "one", "a b", "one two three"]
    made = (await embedding.post("/v1/embeddings", {"input": texts})).json()["data"]
    query, *others = [each["embedding"] for each in made]
    cosines = [sum(map(mul, query, other)) / math.hypot(*query) / math.hypot(*other) for other in others]
    backend.embedded.clear()
    answer = (await embedding.post("/rerank", {"query": texts[0], "documents": texts[1:], "top_n": 2})).json()
    assert len(backend.embedded) == 3  # each text once
    assert answer["usage"] == {"prompt_tokens": 6, "total_tokens": 6}
    order = sorted(range(3), key=cosines.__getitem__, reverse=True)[:2]
    assert [result["index"] for result in answer["results"]] == order
    assert [result["relevance_score"] for result in answer["results"]] == pytest.approx([cosines[i] for i in order])
    assert answer["results"][0] == {"index": 1, "document": {"text": "a b"}, "relevance_score": pytest.approx(1)}
    for first in ("a b", ["a b"] * 3):
        scores = (await embedding.post("/score", {"text_1": first, "text_2": texts[1:]})).json()["data"]
        assert [each["score"] for each in scores] == pytest.approx(cosines)


async def test_wrong_requests_to_embedding_models(model_dir: ModelDirectory, serve: Serve) -> None:
    embedding = await serve(model_dir({"serving.properties": f"{SCRIPTED}option.task=text-embedding\n"}))
    long = "b " * (MAX_LENGTH + 1)
    for path, wrong, reason in (
        ("/rerank", {"query": "a", "documents": ["b", long]}, "`documents.1` must be at most"),
        ("/rerank", {"query": long, "documents": ["b"]}, "`query` must be at most"),
        ("/score", {"text_1": long, "text_2": ["b", "c"]}, "`text_1` must be at most"),
        ("/score", {"text_1": ["a", long], "text_2": ["b", "c"]}, "`text_1.1` must be at most"),
        ("/score", {"queries": ["a", long], "documents": ["b", "c"]}, "`queries.1` must be at most"),
    ):
        assert reason in message(await embedding.post(path, wrong))


async def test_embedding_models_cut_texts_to_their_limits(model_dir: ModelDirectory, serve: Serve) -> None:
    embedding = await serve(model_dir({"serving.properties": f"{SCRIPTED}option.task=text-embedding\n"}))
    backend = embedding.model.backend
    assert isinstance(backend, ScriptedBackend)
    body = {"query": "a b c", "documents": ["a b c", "one"], "max_tokens_per_query": 1, "max_tokens_per_doc": 2}
    assert (await embedding.post("/rerank", body)).status == 200
    assert [len(request.prompt_ids) for request in backend.embedded] == [1, 2, 1]
