"""happy_vllm's endpoints beside generation."""

from typing import Any

import pytest

from tests.conftest import SCRIPTED, ModelDirectory, RunningServer, Serve

TEXT = "Hey, how are you ? I am clearly fine. And you ? Exceptionally good, thanks for asking."


@pytest.fixture
async def server(serve: Serve, model_dir: ModelDirectory) -> RunningServer:
    return await serve(model_dir({"serving.properties": SCRIPTED}))


async def test_info(server: RunningServer) -> None:
    info = (await server.get("/v1/info")).json()
    assert (info["application"], info["model_name"]) == ("lmi-handlers", "model")
    assert (info["truncation_side"], info["max_length"]) == ("right", 2048)


async def test_liveness_and_readiness(server: RunningServer) -> None:
    assert (await server.get("/liveness")).json() == {"alive": "ok"}
    assert (await server.get("/readiness")).json() == {"ready": "ok"}
    server.model.ready = False
    answer = await server.get("/readiness")
    assert (answer.status, answer.json()) == (503, {"ready": "ko"})
    assert (await server.get("/liveness")).status == 200
    assert (await server.get("/v1/info")).status == 503


async def test_tokenizer_and_back(server: RunningServer) -> None:
    body = {"model": "model", "prompt": "This is a text example", "add_special_tokens": True}
    tokens = (await server.post("/v2/tokenizer", body)).json()
    assert (tokens["count"], tokens["max_model_len"], len(tokens["tokens"])) == (5, 2048, 5)
    text = await server.post("/v2/decode", {"model": "model", "tokens": tokens["tokens"]})
    assert text.json() == {"prompt": "This is a text example"}


async def test_special_tokens(server: RunningServer, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[bool] = []

    def encode(text: str, add_special_tokens: bool = True) -> list[int]:
        seen.append(add_special_tokens)
        return [1]

    monkeypatch.setattr(server.scripted.tokenizer, "encode", encode)
    await server.post("/v2/tokenizer", {"prompt": "a"})
    await server.post("/v2/tokenizer", {"prompt": "a", "add_special_tokens": False})
    assert seen == [True, False]


async def test_tokens_of_messages(serve: Serve, model_dir: ModelDirectory) -> None:
    each = "{% for m in messages %}<{{ m.role }}> {{ m.content }} {% endfor %}"
    template = each + "{% if add_generation_prompt %}<go>{% endif %}"
    server = await serve(model_dir({"serving.properties": f"{SCRIPTED}option.chat_template={template}\n"}))
    messages = [{"role": "system", "content": "Be kind."}, {"role": "user", "content": "Hey"}]
    for given, text in [
        ({}, "<system> Be kind. <user> Hey <go>"),
        ({"add_generation_prompt": False}, "<system> Be kind. <user> Hey "),
    ]:
        tokens = (await server.post("/v2/tokenizer", {"messages": messages, **given})).json()["tokens"]
        assert (await server.post("/v2/decode", {"tokens": tokens})).json() == {"prompt": text}


async def test_split_text_at_separators(server: RunningServer) -> None:
    answer = await server.post("/v1/split_text", {"text": TEXT, "num_tokens_in_chunk": 4})
    assert answer.json()["split_text"] == [
        "Hey, how are you ?",
        " I am clearly fine.",
        " And you ? Exceptionally good, thanks for asking.",
    ]


@pytest.mark.parametrize(
    ("given", "chunks"),
    [
        ({}, [TEXT]),
        (
            {"num_tokens_in_chunk": 1, "separators": ["you"]},
            ["Hey, how are you", " ? I am clearly fine. And you", " ?"],
        ),
        (
            {"num_tokens_in_chunk": 1, "separators": ["clearly", "fine", "ou", "how are you"]},
            ["Hey, how are you", " ? I am clearly", " fine. And you", " ?"],
        ),
        ({"num_tokens_in_chunk": 1, "separators": ["|"]}, [TEXT]),
    ],
)
async def test_chunks(server: RunningServer, given: dict[str, Any], chunks: list[str]) -> None:
    text = TEXT if chunks == [TEXT] else TEXT.partition(" Exc")[0]
    assert (await server.post("/v1/split_text", {"text": text, **given})).json() == {"split_text": chunks}


@pytest.mark.parametrize(
    ("given", "cut_off"),
    [
        ({"truncation_side": "left", "max_length": 2}, "Hey, how are"),
        ({"truncation_side": "right", "max_length": 2}, " are you ?"),
        ({"max_length": 2}, " are you ?"),
        ({"truncation_side": "left", "max_length": 0}, "Hey, how are you ?"),
        ({"truncation_side": "left", "max_length": 7}, ""),
        ({"truncation_side": "left"}, ""),
        ({}, ""),
    ],
)
async def test_metadata_text(server: RunningServer, given: dict[str, Any], cut_off: str) -> None:
    answer = await server.post("/v1/metadata_text", {"text": "Hey, how are you ?", **given})
    assert answer.json() == {"tokens_nb": 5, "truncated_text": cut_off}


@pytest.mark.parametrize(
    ("path", "body", "message"),
    [
        ("/v2/tokenizer", {}, "one of `prompt` and `messages` is required"),
        ("/v2/tokenizer", {"prompt": "a", "messages": [{"role": "user", "content": "a"}]}, "one of `prompt` and"),
        ("/v2/tokenizer", {"messages": []}, "`messages` must have at least 1 item"),
        ("/v2/decode", {"tokens": [1_000_000]}, "`tokens` must contain token ids from 0 to "),
        ("/v2/decode", {"tokens": [-1]}, "`tokens.0` must be greater than or equal to 0. Given: -1"),
        ("/v1/split_text", {"text": "a", "num_tokens_in_chunk": 0}, "`num_tokens_in_chunk` must be greater than"),
        ("/v1/split_text", {"text": "a", "separators": ["."] * 257}, "`separators` must have at most 256 items"),
        ("/v1/split_text", {"text": "a", "separators": ["a" * 129]}, "`separators.0` must have at most 128 characters"),
        ("/v1/metadata_text", {"text": "a", "truncation_side": "top"}, "`truncation_side` must be 'left' or 'right'"),
    ],
)
async def test_invalid_request(server: RunningServer, path: str, body: dict[str, Any], message: str) -> None:
    answer = await server.post(path, body)
    assert answer.status == 422
    assert answer.json()["detail"].startswith(message)


async def test_unknown_model(server: RunningServer) -> None:
    assert (await server.post("/v2/tokenizer", {"prompt": "a", "model": "mudel"})).status == 404


HANDLE = """\
from djl_python import Output

def handle(inputs):
    return Output().add("mine")
"""


@pytest.mark.parametrize("path", ["/v1/info", "/info", "/v2/tokenizer", "/v2/decode"])
async def test_model_that_its_own_function_serves(serve: Serve, model_dir: ModelDirectory, path: str) -> None:
    server = await serve(model_dir({"model.py": HANDLE}))
    body = {"tokens": [1]} if path == "/v2/decode" else {"prompt": "a"}
    answer = await (server.get(path) if path.endswith("info") else server.post(path, body))
    assert answer.status == 404
    assert b"model `model` has no tokenizer: its model function answers requests" in answer.body
