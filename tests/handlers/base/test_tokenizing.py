"""vLLM's routes to a tokenizer, its version and its health."""

import json
from importlib.metadata import version
from typing import Any

import pytest

from lmi_plugins.backends.scripted import Script, WordTokenizer
from tests.conftest import SCRIPTED, Answer, ModelDirectory, RunningServer, Serve
from tests.module_server import module_server

TEMPLATE = (
    "{% for tool in tools or [] %}[{{ tool.function.name }}] {% endfor %}"
    "{% for m in messages %}<{{ m.role }}> {{ m.content }} {% endfor %}"
    "{% if add_generation_prompt %}<go>{% endif %}{{ suffix }}"
)
CHAT = [{"role": "user", "content": "Hey"}, {"role": "assistant", "content": "Well"}]
TOOL = {"type": "function", "function": {"name": "paint"}}

same_loop = pytest.mark.asyncio(loop_scope="module")  # as that of the server that tests share


server = module_server(
    {
        "adapters/french/model.py": "",
        "serving.properties": f"{SCRIPTED}option.chat_template={TEMPLATE}\noption.trust_request_chat_template=true\n",
    }
)


async def text_of(server: RunningServer, tokens: list[int]) -> str:
    answer = await server.post("/detokenize", {"model": "model", "tokens": tokens})
    assert answer.status == 200
    content = answer.json()
    assert content.keys() == {"prompt"}
    return str(content["prompt"])


@same_loop
async def test_text_and_back(server: RunningServer) -> None:
    answer = await server.post("/tokenize", {"model": "model", "prompt": "This is a text"})
    content = answer.json()
    tokens = content["tokens"]
    assert (answer.status, content) == (
        200,
        {"count": 4, "max_model_len": 2048, "tokens": tokens, "token_strs": None},
    )
    assert await text_of(server, tokens) == "This is a text"
    assert await text_of(server, []) == ""


@same_loop
async def test_names_of_tokens(server: RunningServer) -> None:
    cases: list[tuple[dict[str, Any], list[str]]] = [
        ({"prompt": "This is"}, ["This", " is"]),
        ({"messages": CHAT[:1]}, ["<user>", " Hey", " <go>"]),
    ]
    for body, names in cases:
        answer = await server.post("/tokenize", body | {"return_token_strs": True})
        assert answer.json()["token_strs"] == names


@same_loop
@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({}, "<user> Hey <assistant> Well <go>"),
        ({"add_generation_prompt": False}, "<user> Hey <assistant> Well "),
        ({"add_generation_prompt": False, "continue_final_message": True}, "<user> Hey <assistant> Well"),
        ({"chat_template_kwargs": {"suffix": "!"}}, "<user> Hey <assistant> Well <go>!"),
        ({"tools": [TOOL]}, "[paint] <user> Hey <assistant> Well <go>"),
        ({"chat_template": "{{ messages[0].content }}"}, "Hey"),
        ({"temperature": 0.5, "max_tokens": 3, "stream": True}, "<user> Hey <assistant> Well <go>"),
    ],
)
async def test_chat(server: RunningServer, given: dict[str, Any], text: str) -> None:
    answer = await server.post("/tokenize", {"messages": CHAT} | given)
    assert answer.status == 200, answer.body
    assert answer.headers.get("X-Lmi-Ignored-Parameters") is None
    assert await text_of(server, answer.json()["tokens"]) == text


@same_loop
async def test_the_prompt_is_the_chat_s_own(server: RunningServer) -> None:
    body = {"messages": CHAT[:1], "chat_template_kwargs": {"suffix": "!"}}
    told = (await server.post("/v1/chat/completions", body | {"return_token_ids": True})).json()
    assert (await server.post("/tokenize", body)).json()["tokens"] == told["prompt_token_ids"]


@same_loop
@pytest.mark.parametrize(
    ("body", "special"),
    [
        ({"prompt": "a"}, True),
        ({"prompt": "a", "add_special_tokens": None}, True),
        ({"prompt": "a", "add_special_tokens": False}, False),
        ({"messages": CHAT}, False),
        ({"messages": CHAT, "add_special_tokens": True}, True),
    ],
)
async def test_special_tokens(
    server: RunningServer, monkeypatch: pytest.MonkeyPatch, body: dict[str, Any], special: bool
) -> None:
    seen: list[bool] = []

    def encode(text: str, add_special_tokens: bool = True) -> list[int]:
        seen.append(add_special_tokens)
        return []

    monkeypatch.setattr(server.scripted.tokenizer, "encode", encode)
    assert (await server.post("/tokenize", body)).json()["count"] == 0
    assert seen == [special]


@same_loop
@pytest.mark.parametrize("path", ["/tokenize", "/detokenize"])
@pytest.mark.parametrize(
    ("name", "status"),
    [("model", 200), ("french", 200), ("", 200), ("tgi", 200), (None, 200), ("mudel", 404)],
)
async def test_names_of_the_model(server: RunningServer, path: str, name: str | None, status: int) -> None:
    body: dict[str, Any] = {"prompt": "a"} if path == "/tokenize" else {"tokens": []}
    answer = await server.post(path, body | {"model": name})
    assert answer.status == status
    assert status == 200 or answer.json()["error"]["code"] == "model_not_found"


@same_loop
@pytest.mark.parametrize(
    ("path", "body", "message"),
    [
        ("/tokenize", {}, "one of `prompt` and `messages` is required"),
        ("/tokenize", {"prompt": "a", "messages": CHAT}, "one of `prompt` and `messages` is required"),
        ("/tokenize", {"messages": []}, "`messages` must have at least 1 item"),
        ("/tokenize", {"prompt": ["a"]}, "`prompt` must be a"),
        ("/detokenize", {}, "`tokens` is required"),
        ("/detokenize", {"tokens": [2**40]}, "`tokens` must contain token ids from 0 to "),
        ("/detokenize", {"tokens": [2**70]}, "`tokens"),
        ("/detokenize", {"tokens": [-1]}, "`tokens.0` must be greater than or equal to 0. Given: -1"),
    ],
)
async def test_invalid_request(server: RunningServer, path: str, body: dict[str, Any], message: str) -> None:
    answer = await server.post(path, body)
    error = answer.json()["error"]
    assert (answer.status, error["type"]) == (400, "invalid_request_error")
    assert error["message"].startswith(message), error["message"]


@same_loop
async def test_no_place_in_the_queue(server: RunningServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server.model.admission, "maximum", 0)
    assert (await server.post("/v1/completions", {"prompt": "a"})).status == 503
    tokenized = await server.post("/tokenize", {"prompt": "a"})
    assert tokenized.status == 200
    assert (await server.post("/detokenize", {"tokens": tokenized.json()["tokens"]})).status == 200


@same_loop
async def test_before_the_model_is_loaded(server: RunningServer, monkeypatch: pytest.MonkeyPatch) -> None:
    healthy = await server.get("/health")
    assert (healthy.status, healthy.body) == (200, b"")
    monkeypatch.setattr(server.model, "ready", False)
    answer = await server.post("/tokenize", {"prompt": "a"})
    assert (answer.status, answer.json()["error"]["code"]) == (503, "model_not_ready")
    assert (await server.get("/health")).status == 503
    assert (await server.get("/version")).json() == {"version": version("lmi-handlers")}


@same_loop
async def test_load(server: RunningServer) -> None:
    script = Script("Hey you", hold=True)
    server.scripted.enqueue(script)
    body = {"prompt": "a", "stream": True}
    async with server.client.post("/v1/completions", json=body) as response:
        await response.content.readuntil(b"\n\n")
        assert (await server.get("/load")).json() == {"server_load": 1}
    await script.closed.wait()
    assert (await server.get("/load")).json() == {"server_load": 0}


@pytest.mark.parametrize("strict", [False, True])
async def test_unknown_field(serve: Serve, model_dir: ModelDirectory, strict: bool) -> None:
    properties = f"{SCRIPTED}option.strict_parameters={str(strict).lower()}\n"
    server = await serve(model_dir({"serving.properties": properties}))
    answers: list[Answer] = [
        await server.post("/tokenize", {"prompt": "a", "zzz": 1}),
        await server.post("/tokenize", {"messages": CHAT, "zzz": 1}),
        await server.post("/detokenize", {"tokens": [], "zzz": 1}),
    ]
    for answer in answers:
        ignored = answer.headers.get("X-Lmi-Ignored-Parameters")
        assert (answer.status, ignored) == ((400, None) if strict else (200, "zzz"))


async def test_model_that_its_own_function_serves(serve: Serve, model_dir: ModelDirectory) -> None:
    server = await serve(model_dir({"model.py": "def handle(inputs):\n    return None\n"}))
    for path, body in (("/tokenize", {"prompt": "a"}), ("/detokenize", {"tokens": []})):
        answer = await server.post(path, body)
        message = "model `model` has no tokenizer: its model function answers requests"
        assert (answer.status, answer.json()["error"]["message"]) == (404, message)


async def test_tokenizer_info(serve: Serve, model_dir: ModelDirectory) -> None:
    option = "option.enable_tokenizer_info_endpoint=true\n"
    server = await serve(model_dir({"serving.properties": f"{SCRIPTED}{option}option.chat_template={TEMPLATE}\n"}))
    for path in ("/tokenizer_info", "/tokenizer_info?model=model"):
        answer = await server.get(path)
        expected = {"tokenizer_class": "WordTokenizer", "chat_template": TEMPLATE}
        assert (answer.status, answer.json()) == (200, expected)
    unknown = await server.get("/tokenizer_info?model=other")
    assert (unknown.status, unknown.json()["error"]["code"]) == (404, "model_not_found")


async def test_tokenizer_without_a_maximum_length(
    serve: Serve, model_dir: ModelDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    configuration = {"model_max_length": int(1e30)}  # as transformers has it
    monkeypatch.setattr(WordTokenizer, "configuration", lambda self: configuration)
    option = "option.enable_tokenizer_info_endpoint=true\n"
    server = await serve(model_dir({"serving.properties": f"{SCRIPTED}{option}option.chat_template={TEMPLATE}\n"}))
    answer = await server.get("/tokenizer_info")
    assert (answer.status, json.loads(answer.body)) == (200, configuration | {"chat_template": TEMPLATE})


@same_loop
async def test_tokenizer_info_is_not_shown_unasked(server: RunningServer) -> None:
    answer = await server.get("/tokenizer_info")
    assert answer.status == 404
    assert "option.enable_tokenizer_info_endpoint=true serves it" in answer.json()["error"]["message"]
