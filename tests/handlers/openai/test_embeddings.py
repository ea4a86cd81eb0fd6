"""OpenAI's embeddings over HTTP, on the scripted backend."""

import asyncio
import shlex
import struct
from base64 import b64decode
from typing import Any

import orjson
import pytest

from lmi_handlers.cli.serving import ready_message
from lmi_plugins.backends.scripted import Script, ScriptedBackend
from tests.conftest import SCRIPTED, Answer, ModelDirectory, RunningServer, Serve
from tests.module_server import module_server

EMBEDDING = SCRIPTED + "option.task=text-embedding\n"
TEMPLATE = (
    "option.chat_template={% for m in messages %}<{{ m.role }}> {{ m.content }} {% endfor %}"
    "{% if add_generation_prompt %}<go>{% endif %}\n"
)

same_loop = pytest.mark.asyncio(loop_scope="module")  # as that of the server that tests share


shared = module_server(EMBEDDING + TEMPLATE)


def backend(server: RunningServer) -> ScriptedBackend:
    found = server.model.backend
    assert isinstance(found, ScriptedBackend)
    return found


async def ask(server: RunningServer, given: object, **fields: Any) -> Answer:
    return await server.post("/v1/embeddings", {"input": given, **fields})


def vectors(answer: Answer) -> list[list[float]]:
    assert answer.status == 200, answer.body
    return [each["embedding"] for each in answer.json()["data"]]


def texts(server: RunningServer, count: int = 1) -> list[str]:
    """Return what the latest vectors were made of."""
    return [backend(server).tokenizer.decode(each.prompt_ids) for each in backend(server).embedded[-count:]]


@same_loop
async def test_the_answer(shared: RunningServer) -> None:
    answer = await shared.post("/v1/embeddings", {"input": ["one two", "one"]}, headers={"x-request-id": "mine"})
    assert (answer.status, answer.content_type) == (200, "application/json")
    content = answer.json()
    assert content.pop("created") > 0
    first, second = (shared.scripted.tokenizer.id(word) for word in ("one", " two"))
    assert content == {
        "id": "embd-mine",
        "object": "list",
        "model": "model",
        "data": [
            {"object": "embedding", "index": 0, "embedding": [2, first, second, 0.1]},
            {"object": "embedding", "index": 1, "embedding": [1, first, first, 0.1]},
        ],
        "usage": {"prompt_tokens": 3, "total_tokens": 3},
    }
    assert b"0.1]" in answer.body, "numbers are written as short as float32 can be"
    assert int(answer.headers["Content-Length"]) == len(answer.body)


@same_loop
@pytest.mark.parametrize(
    ("given", "lengths"),
    [
        ("a b", [2]),
        (["a b"], [2]),
        (["a", "a b c"], [1, 3]),
        ([0, 0, 0], [3]),
        ([[0], [0, 0]], [1, 2]),
        (["a", [0, 0]], [1, 2]),
    ],
)
async def test_forms_of_inputs(shared: RunningServer, given: object, lengths: list[int]) -> None:
    shared.scripted.tokenizer.id("a")
    assert [vector[0] for vector in vectors(await ask(shared, given))] == lengths


@same_loop
async def test_what_the_server_says_of_the_model(shared: RunningServer) -> None:
    info = (await shared.get("/info")).json()
    assert (info["model_pipeline_tag"], info["max_input_tokens"]) == ("feature-extraction", 2048)
    _, _, command = ready_message(shared.server).partition(" -- try: ")
    *_, body = shlex.split(command)
    answer = await shared.post("/invocations", data=body.encode())
    assert (answer.status, len(answer.json())) == (200, 4)
    assert "X-Lmi-Ignored-Parameters" not in answer.headers


@same_loop
async def test_base64(shared: RunningServer) -> None:
    (plain,) = vectors(await ask(shared, "a b"))
    (encoded,) = (await ask(shared, "a b", encoding_format="base64")).json()["data"]
    assert list(struct.unpack("<4f", b64decode(encoded["embedding"]))) == [*plain[:3], pytest.approx(0.1)]


@same_loop
@pytest.mark.parametrize(("endianness", "order"), [("native", "<"), ("little", "<"), ("big", ">")])
async def test_bytes(shared: RunningServer, endianness: str, order: str) -> None:
    expected = [number for vector in vectors(await ask(shared, ["a b", "c"])) for number in vector]
    for encoding in ("bytes", "bytes_only"):
        answer = await ask(shared, ["a b", "c"], encoding_format=encoding, endianness=endianness)
        assert answer.content_type == "application/octet-stream"
        assert list(struct.unpack(f"{order}8f", answer.body)) == pytest.approx(expected)
        assert ("metadata" in answer.headers) == (encoding == "bytes")
        if encoding == "bytes":
            metadata = orjson.loads(answer.headers["metadata"])
            assert metadata.keys() == {"id", "created", "model", "data", "usage"}
            item = {
                "index": 1,
                "embed_dtype": "float32",
                "endianness": endianness,
                "start": 16,
                "end": 32,
                "shape": [4],
            }
            assert metadata["data"][1] == item
            assert metadata["usage"] == {"prompt_tokens": 3, "total_tokens": 3}
    (encoded,) = (await ask(shared, "a b", encoding_format="base64", endianness=endianness)).json()["data"]
    assert list(struct.unpack(f"{order}4f", b64decode(encoded["embedding"]))) == pytest.approx(expected[:4])


@same_loop
async def test_dimensions(shared: RunningServer) -> None:
    assert [len(vector) for vector in vectors(await ask(shared, ["a", "b"], dimensions=2))] == [2, 2]
    refused = await ask(shared, "a", dimensions=5)
    error = refused.json()["error"]
    assert (refused.status, error["param"], error["code"]) == (400, "dimensions", "invalid_parameter")


@same_loop
@pytest.mark.parametrize(
    ("fields", "normalize"),
    [
        ({}, None),
        ({"use_activation": False}, False),
        ({"normalize": True}, True),
        ({"normalize": False, "use_activation": False}, False),
    ],
)
async def test_normalize(shared: RunningServer, fields: dict[str, Any], normalize: bool | None) -> None:
    await ask(shared, "a", **fields)
    assert backend(shared).embedded[-1].normalize is normalize


@same_loop
async def test_truncation(shared: RunningServer) -> None:
    for fields, text in (
        ({"truncate_prompt_tokens": 2}, "a b"),
        ({"truncate_prompt_tokens": 2, "truncation_side": "left"}, " b c"),
        ({"truncate_prompt_tokens": -1}, "a b c"),
    ):
        await ask(shared, "a b c", **fields)
        assert texts(shared) == [text]


@same_loop
@pytest.mark.parametrize(
    ("fields", "text"),
    [({}, "<user> Hey "), ({"add_generation_prompt": True}, "<user> Hey <go>")],
)
async def test_chat(shared: RunningServer, fields: dict[str, Any], text: str) -> None:
    answer = await shared.post("/v1/embeddings", {"messages": [{"role": "user", "content": "Hey"}], **fields})
    assert len(vectors(answer)) == 1
    assert texts(shared) == [text]


@same_loop
@pytest.mark.parametrize(
    ("body", "status", "message"),
    [
        ({}, 400, "one of `input` and `messages` is required"),
        ({"input": "a", "messages": []}, 400, "one of `input` and `messages` is required"),
        (
            {"input": []},
            400,
            "`input` must be a string, a list of token ids, or a list of strings or of lists of token ids. Given: []",
        ),
        ({"input": ""}, 400, "`input` must contain at least one token. Given: 0"),
        ({"input": ["a", ""]}, 400, "`input.1` must contain at least one token. Given: 0"),
        ({"input": "a", "encoding_format": "hex"}, 400, "`encoding_format` must be 'float', 'base64', 'bytes' or"),
        ({"input": "a", "embed_dtype": "float16"}, 400, "`embed_dtype` must be 'float32'"),
        ({"input": "a", "dimensions": 0}, 400, "`dimensions` must be greater than or equal to 1. Given: 0"),
        ({"input": "a", "model": "other"}, 404, "model `other` is not served."),
        ({"input": [2**40]}, 400, "`input` must contain token ids from 0 to "),
        (
            {"input": "a " * 2049},
            400,
            "This model's maximum context length is 2048 tokens. However, `input` must be at most 2048 tokens long",
        ),
        (
            {"input": "a", "normalize": True, "use_activation": False},
            400,
            "`use_activation` and `normalize` are the same; give one of them",
        ),
    ],
)
async def test_wrong_requests(shared: RunningServer, body: dict[str, Any], status: int, message: str) -> None:
    answer = await shared.post("/v1/embeddings", body)
    assert answer.status == status
    error = answer.json()["error"]
    assert error["message"].startswith(message), error["message"]
    assert error["type"] == "invalid_request_error"


@same_loop
async def test_names_of_the_request(shared: RunningServer, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    answer = await ask(shared, "a", request_id="own", user="who", zzz=1)
    assert (answer.json()["id"], answer.headers["x-request-id"]) == ("embd-own", "own")
    assert answer.headers["X-Lmi-Ignored-Parameters"] == "zzz"
    assert "request own was sent by user 'who'" in caplog.messages


@same_loop
async def test_failure(shared: RunningServer) -> None:
    shared.scripted.enqueue(Script(error="out of vectors"))
    answer = await ask(shared, ["a", "b"])
    assert (answer.status, answer.json()["error"]["message"]) == (500, "out of vectors")
    assert answer.json()["error"]["code"] == "generation_failed"


@same_loop
async def test_client_that_leaves(shared: RunningServer) -> None:
    script = Script(hold=True)
    shared.scripted.enqueue(script)
    asking = asyncio.create_task(ask(shared, ["a", "b"]))
    await script.started.wait()
    asking.cancel()
    await script.closed.wait()
    assert len(vectors(await ask(shared, "a"))) == 1


@same_loop
async def test_abort(shared: RunningServer) -> None:
    script = Script(hold=True)
    shared.scripted.enqueue(script)
    asking = asyncio.create_task(ask(shared, "a", request_id="long"))
    await script.started.wait()
    await shared.post("/v1/abort_request", {"request_id": "long"})
    answer = await asking
    assert (answer.status, answer.json()["error"]["code"]) == (499, "aborted")


@same_loop
@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/chat/completions", {"messages": [{"role": "user", "content": "Hi"}]}),
        ("/v1/completions", {"prompt": "Hi"}),
        ("/v1/generate", {"prompt": "Hi"}),
        ("/generate", {"inputs": "Hi"}),
        ("/invocations", {"messages": [{"role": "user", "content": "Hi"}]}),
        ("/v2/models/model/generate", {"text_input": "Hi"}),
        ("/v2/models/model/infer", {"inputs": []}),
    ],
)
async def test_nothing_is_generated(shared: RunningServer, path: str, body: dict[str, Any]) -> None:
    answer = await shared.post(path, body)
    assert answer.status == 404, answer.body
    assert "model `model` makes embeddings and generates no text: use POST /v1/embeddings" in answer.body.decode()


async def test_a_model_that_only_generates(serve: Serve, model_dir: ModelDirectory) -> None:
    server = await serve(model_dir({"serving.properties": SCRIPTED}))
    answer = await ask(server, "a")
    error = answer.json()["error"]
    assert (answer.status, error["type"], error["code"]) == (404, "invalid_request_error", "model_not_found")
    assert error["message"].startswith(
        "model `model` makes no embeddings on the scripted backend: set option.task=text-embedding if the "
    )


async def test_a_model_function(serve: Serve, model_dir: ModelDirectory) -> None:
    server = await serve(
        model_dir({"model.py": "from djl_python import Output\ndef handle(inputs):\n    return Output()\n"})
    )
    answer = await ask(server, "a")
    assert answer.status == 200, "the model function answers on every route"


async def test_several_models(serve: Serve, model_dir: ModelDirectory) -> None:
    store = model_dir({"serving.properties": EMBEDDING}, name="store/vectors").parent
    model_dir({"serving.properties": SCRIPTED}, name="store/texts")
    server = await serve(store)
    assert len(vectors(await ask(server, "a", model="vectors"))) == 1
    assert (await ask(server, "a", model="texts")).status == 404
    assert (await server.post("/v1/completions", {"model": "texts", "prompt": "a"})).status == 200


async def test_dynamic_batch(serve: Serve, model_dir: ModelDirectory) -> None:
    server = await serve(model_dir({"serving.properties": EMBEDDING + "batch_size=4\nmax_batch_delay=1\n"}))
    answers = await asyncio.gather(*(ask(server, "a b") for _ in range(6)))
    assert [vectors(answer)[0][0] for answer in answers] == [2] * 6


async def test_strict_parameters(serve: Serve, model_dir: ModelDirectory) -> None:
    server = await serve(model_dir({"serving.properties": EMBEDDING + "option.strict_parameters=true\n"}))
    answer = await ask(server, "a", encoding_fromat="float")
    assert answer.status == 400
    assert "Did you mean `encoding_format`?" in answer.json()["error"]["message"]


async def test_adapter_without_weights(serve: Serve, model_dir: ModelDirectory) -> None:
    server = await serve(model_dir({"serving.properties": EMBEDDING, "adapters/french/model.py": ""}))
    for fields in ({"model": "french"}, {"adapters": "french"}):
        answer = await server.post("/v1/embeddings", {"input": "a", **fields})
        assert (answer.status, answer.json()["error"]["code"]) == (400, "invalid_parameter")
        assert answer.json()["error"]["message"].startswith("adapter `french` has only code for text answers")
    assert (await server.post("/v1/embeddings", {"input": "a", "adapters": "frensh"})).status == 404


@same_loop
async def test_pooling(shared: RunningServer) -> None:
    """vLLM's route for all results of pooling models returns the same vectors in a form of its own."""
    for body in ({"input": ["one two", "one"]}, {"messages": [{"role": "user", "content": "Hi"}]}):
        answer = await shared.post("/pooling", {**body, "task": "embed"}, headers={"x-request-id": "mine"})
        usual = (await shared.post("/v1/embeddings", body)).json()
        content = answer.json()
        assert (answer.status, content["id"], content["object"]) == (200, "pooling-mine", "list")
        assert content["usage"] == usual["usage"]
        assert content["data"] == [
            {"object": "pooling", "index": each["index"], "data": each["embedding"]} for each in usual["data"]
        ]
    base64 = (await shared.post("/pooling", {"input": "one", "encoding_format": "base64"})).json()["data"][0]["data"]
    assert struct.unpack("<4f", b64decode(base64))[0] == 1
    binary = await shared.post("/pooling", {"input": "one", "encoding_format": "bytes"})
    assert orjson.loads(binary.headers["metadata"])["id"].startswith("pooling-")
    for path, status in (("/pooling", 400), ("/v1/embeddings", 200)):  # `task` is unknown elsewhere
        assert (await shared.post(path, {"input": "one", "task": "classify"})).status == status
