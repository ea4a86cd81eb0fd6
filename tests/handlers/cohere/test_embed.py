"""Cohere's embeddings over HTTP, on the scripted backend, and on a tiny encoder of the torch engine."""

import struct
from base64 import b64decode
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import numpy
import pytest
import pytest_asyncio

from lmi_plugins.backends.scripted import ScriptedBackend
from tests.conftest import SCRIPTED, Answer, ModelDirectory, RunningServer, Serve, running_server
from tests.module_server import module_server

same_loop = pytest.mark.asyncio(loop_scope="module")  # as that of the servers that tests share

EMBEDDING = f"{SCRIPTED}option.task=text-embedding\n"
PATHS = ["/v1/embed", "/v2/embed"]
IGNORED = "X-Lmi-Ignored-Parameters"
QUERY = "query: "

server = module_server(EMBEDDING)
strict = module_server(f"{EMBEDDING}option.strict_parameters=true\n")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def encoder(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[RunningServer]:
    from tests.plugins.torch_engine.embeddings.encoders import save_encoder, save_recipe, write

    directory = tmp_path_factory.mktemp("cohere") / "encoder"
    save_encoder(directory, "bert")
    save_recipe(directory, {"pooling_mode_mean_tokens": True}, length=40)
    write(directory / "config_sentence_transformers.json", {"prompts": {"query": QUERY, "document": ""}})
    properties = "option.rolling_batch=torch\noption.device=cpu\noption.matryoshka_dimensions=8,12\n"
    (directory / "serving.properties").write_text(properties)
    async with running_server(directory) as running:
        yield running


async def embed(server: RunningServer, *texts: str, path: str = "/v2/embed", **fields: Any) -> Any:
    answer = await server.post(path, {"texts": texts, **fields})
    assert answer.status == 200, answer.body
    return answer.json()["embeddings"]


def backend(server: RunningServer) -> ScriptedBackend:
    found = server.model.backend
    assert isinstance(found, ScriptedBackend)
    return found


def texts(server: RunningServer, count: int = 1) -> list[str]:
    """Return what the latest vectors were made of."""
    return [backend(server).tokenizer.decode(each.prompt_ids) for each in backend(server).embedded[-count:]]


def message(answer: Answer, status: int = 400) -> str:
    assert answer.status == status, answer.body
    content = answer.json()
    assert list(content) == ["message"]
    return str(content["message"])


@same_loop
async def test_the_answer(server: RunningServer) -> None:
    body = {"model": "model", "texts": ["one two", "one"], "embedding_types": ["float"], "priority": 0}
    answer = await server.post("/v2/embed", body, headers={"x-request-id": "mine"})
    assert (answer.status, answer.content_type, IGNORED in answer.headers) == (200, "application/json", False)
    first, second = (server.scripted.tokenizer.id(word) for word in ("one", " two"))
    expected = {
        "id": "embd-mine",
        "texts": ["one two", "one"],
        "embeddings": {"float": [[2, first, second, 0.1], [1, first, first, 0.1]]},
        "meta": {"api_version": {"version": "2"}, "billed_units": {"input_tokens": 3, "image_tokens": 0}},
        "response_type": "embeddings_by_type",
    }
    assert answer.json() == expected
    assert (await embed(server, "one two", "one")) == expected["embeddings"]


@same_loop
async def test_the_first_version_returns_numbers_unless_types_are_named(server: RunningServer) -> None:
    answer = await server.post("/v1/embed", {"texts": ["one two"]})
    content = answer.json()
    assert (content["response_type"], content["meta"]["api_version"]) == ("embeddings_floats", {"version": "1"})
    assert [vector[0] for vector in content["embeddings"]] == [2]
    assert (await embed(server, "one two", path="/v1/embed", embedding_types=["float"])) == {
        "float": content["embeddings"]
    }


@same_loop
async def test_inputs_of_several_texts(server: RunningServer) -> None:
    parts = [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}]
    answer = await server.post("/v2/embed", {"inputs": [{"content": parts}, {"content": parts[:1]}]})
    assert (answer.status, "texts" in answer.json()) == (200, False)
    assert sorted(texts(server, 2)) == ["one", "one\ntwo"]


@pytest.mark.parametrize("path", PATHS)
@same_loop
async def test_long_texts_are_truncated(server: RunningServer, path: str) -> None:
    """A text loses its end with END, which is the default."""
    long = "first " + "a " * 3000 + "last"
    for fields in ({}, {"truncate": "END"}):
        await embed(server, long, path=path, **fields)
        assert (len(backend(server).embedded[-1].prompt_ids), texts(server)[0][:5]) == (2048, "first")
    await embed(server, long, path=path, truncate="START", max_tokens=9000)
    assert (len(backend(server).embedded[-1].prompt_ids), texts(server)[0][-4:]) == (2048, "last")
    await embed(server, "one two three", path=path, truncate="START", max_tokens=2)
    assert texts(server) == [" two three"]
    refused = await server.post(path, {"texts": [long], "truncate": "NONE"})
    assert "`texts.0` must be at most 2048 tokens long" in message(refused)
    refused = await server.post(path, {"texts": ["a b", "a b c"], "truncate": "NONE", "max_tokens": 2})
    assert message(refused) == "`texts.1` must be at most 2 tokens long. Given: 3"


@same_loop
async def test_input_types(server: RunningServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Prompts of the model, by its own names and by Cohere's."""
    found = backend(server).embedding
    assert found is not None
    monkeypatch.setattr(backend(server), "embedding", replace(found, prompts={"query": "ask ", "web": "see "}))
    for given, read in (("query", "ask a"), ("search_query", "ask a"), ("web", "see a")):
        answer = await server.post("/v2/embed", {"texts": ["a"], "input_type": given})
        assert (texts(server), IGNORED in answer.headers, answer.json()["texts"]) == ([read], False, ["a"])
    answer = await server.post("/v2/embed", {"texts": ["a"], "input_type": "search_document"})
    assert (texts(server), answer.headers[IGNORED]) == (["a"], "input_type")
    refused = await server.post("/v2/embed", {"texts": ["a"], "input_type": "other"})
    assert message(refused) == "`input_type` must be one of query, web. Given: 'other'"


@same_loop
async def test_input_types_of_a_model_without_prompts(server: RunningServer, strict: RunningServer) -> None:
    answer = await server.post("/v2/embed", {"texts": ["a"], "input_type": "search_query"})
    assert (answer.status, answer.headers[IGNORED]) == (200, "input_type")
    told = "`input_type` must be omitted: the model's files contain no prompts. Given: "
    assert message(await server.post("/v2/embed", {"texts": ["a"], "input_type": "other"})) == f"{told}'other'"
    assert (
        message(await strict.post("/v2/embed", {"texts": ["a"], "input_type": "clustering"})) == f"{told}'clustering'"
    )


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ({}, "one of `texts` and `inputs` is required"),
        ({"texts": ["a"], "inputs": [{"content": [{"type": "text", "text": "a"}]}]}, "one of `texts` and `inputs` is"),
        ({"texts": []}, "`texts` must"),
        ({"texts": ["a", ""]}, "`texts.1` must contain at least one token. Given: 0"),
        ({"inputs": [{"content": []}]}, "`inputs.0.content` must"),
        (
            {"inputs": [{"content": [{"type": "image_url", "image_url": {"url": "x"}}]}]},
            "`inputs.0.content.0.type` must",
        ),
        ({"images": ["data:image/png;base64,AA=="]}, "`images` must be null or []: only texts have embeddings"),
        (
            {"texts": ["a"], "embedding_types": ["int8"]},
            "`embedding_types.0` must be 'float', 'base64', 'binary' or 'ubinary'",
        ),
        ({"texts": ["a"], "embedding_types": ["ubinary"]}, "`embedding_types` must be float or base64"),
        ({"texts": ["a"], "output_dimension": 5}, "`output_dimension` must be from 1 to 4"),
        ({"texts": ["a"], "truncate": "MIDDLE"}, "`truncate` must be"),
        ({"texts": ["a"], "max_tokens": 0}, "`max_tokens` must be"),
    ],
)
@same_loop
async def test_wrong_requests(server: RunningServer, path: str, body: dict[str, Any], reason: str) -> None:
    assert message(await server.post(path, body)).startswith(reason)


@same_loop
async def test_unknown_fields_and_models(server: RunningServer, strict: RunningServer) -> None:
    answer = await server.post("/v2/embed", {"texts": ["a"], "other": 1})
    assert (answer.status, answer.headers[IGNORED]) == (200, "other")
    assert message(await strict.post("/v2/embed", {"texts": ["a"], "other": 1})).startswith("`other`")
    assert "`other` is not served" in message(await server.post("/v2/embed", {"texts": ["a"], "model": "other"}), 404)


@pytest.mark.parametrize(
    ("task", "reason"), [("text-generation", "makes no embeddings"), ("reranking", "is a reranker")]
)
async def test_models_without_vectors(task: str, reason: str, model_dir: ModelDirectory, serve: Serve) -> None:
    other = await serve(model_dir({"serving.properties": f"{SCRIPTED}option.task={task}\n"}))
    assert reason in message(await other.post("/v2/embed", {"texts": ["a"]}), 404)


@same_loop
async def test_types(encoder: RunningServer) -> None:
    given = await embed(encoder, "fox", "Grüße", embedding_types=["ubinary", "float", "base64", "binary", "float"])
    assert list(given) == ["ubinary", "float", "base64", "binary"]
    for index, vector in enumerate(given["float"]):
        assert list(struct.unpack("<32f", b64decode(given["base64"][index]))) == pytest.approx(vector)
        unsigned = numpy.packbits([number >= 0 for number in vector])
        assert given["ubinary"][index] == unsigned.tolist()
        assert given["binary"][index] == (unsigned.astype(int) - 128).tolist()


@same_loop
async def test_sizes(encoder: RunningServer) -> None:
    given = await embed(encoder, "fox", output_dimension=8, embedding_types=["float", "binary"])
    assert (len(given["float"][0]), len(given["binary"][0])) == (8, 1)
    refused = await encoder.post("/v2/embed", {"texts": ["a"], "output_dimension": 9})
    assert "`output_dimension` must be one of 8, 12, 32" in message(refused)
    body = {"texts": ["a"], "output_dimension": 12, "embedding_types": ["binary"]}
    assert message(await encoder.post("/v2/embed", body)).endswith("and these have 12 numbers")


@same_loop
async def test_vectors_and_prompts_of_an_encoder(encoder: RunningServer) -> None:
    """The vectors equal those of OpenAI's route, with the prompt in the model's files before the text."""
    for fields, text in (
        ({}, "fox"),
        ({"input_type": "search_query"}, f"{QUERY}fox"),
        ({"input_type": "document"}, "fox"),
    ):
        (own,) = (await embed(encoder, "fox", **fields))["float"]
        answer = await encoder.post("/v1/embeddings", {"input": text})
        assert own == pytest.approx(answer.json()["data"][0]["embedding"], abs=1e-6)
