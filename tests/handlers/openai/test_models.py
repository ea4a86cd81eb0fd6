"""The list of models, which has their adapters too, and what a request may name as its model."""

from typing import Any

import pytest

from tests.conftest import SCRIPTED, ModelDirectory, RunningServer, Serve
from tests.module_server import module_server

SCRIPT = """\
from djl_python.output_formatter import output_formatter

@output_formatter
def f(response_data: dict) -> dict:
    return {"by": __file__}
"""
TEMPLATE = "option.chat_template={% for message in messages %}{{ message.content }}{% endfor %}\n"
ROUTES = [
    ("/v1/completions", {"prompt": "Hi"}),
    ("/v1/chat/completions", {"messages": [{"role": "user", "content": "Hi"}]}),
]
HANDLE = "def handle(inputs):\n    return None\n"

same_loop = pytest.mark.asyncio(loop_scope="module")  # as that of the server that tests share


# Two models, of which one has two names and all have adapters: `both` belongs to both, `two` is a model's name.
server = module_server(
    {
        "one/serving.properties": f"{SCRIPTED}option.served_model_name=uno\n",
        "two/serving.properties": SCRIPTED,
        **{f"one/adapters/{name}/model.py": SCRIPT for name in ("french", "both", "two")},
        **{f"two/adapters/{name}/model.py": SCRIPT for name in ("german", "both")},
    },
    "",
)


def card(server: RunningServer, name: str, **members: Any) -> dict[str, Any]:
    created = server.dispatcher.models["one"].created
    allowed = ("allow_sampling", "allow_logprobs", "allow_view")
    refused = ("allow_create_engine", "allow_search_indices", "allow_fine_tuning", "is_blocking")
    permission = {"id": f"modelperm-{name}", "object": "model_permission", "created": created}
    known = {
        "created": created,
        "permission": [
            permission
            | dict.fromkeys(allowed, True)
            | dict.fromkeys(refused, False)
            | {"organization": "*", "group": None}
        ],
        "max_model_len": 2048,
        "engine": "scripted",
        "example_questions": [],
        "capabilities": dict.fromkeys(("completion", "chat", "logprobs"), True)
        | dict.fromkeys(("tools", "insert", "reasoning", "embeddings", "rerank"), False)
        | {"images": 0},
    }
    return {"id": name, "object": "model", "owned_by": "lmi"} | known | members


@same_loop
async def test_list(server: RunningServer) -> None:
    answer = (await server.get("/v1/models")).json()
    assert answer["object"] == "list"
    assert [(each["id"], each["root"], each["parent"]) for each in answer["data"]] == [
        ("uno", "one", None),
        ("one", "one", None),
        ("two", "two", None),
        ("french", "french", "uno"),
        ("german", "german", "two"),
    ]
    assert answer["data"][1] == card(server, "one", root="one", parent=None)


@pytest.mark.parametrize(
    ("given", "root"),
    [
        ("org/Some-model.v1", "org/Some-model.v1"),
        ("/opt/weights", "model"),
        ("weights/llama", "model"),
        ("s3://bucket/a/", "model"),
    ],
)
async def test_root_is_an_id_on_the_hub(serve: Serve, model_dir: ModelDirectory, given: str, root: str) -> None:
    files = {"serving.properties": f"{SCRIPTED}option.model_id={given}\n", "weights/llama/config.json": "{}"}
    server = await serve(model_dir(files))
    assert (await server.get("/v1/models/model")).json()["root"] == root


@same_loop
async def test_each_of_the_list_is_found(server: RunningServer) -> None:
    for entry in (await server.get("/v1/models")).json()["data"]:
        assert (await server.get(f"/v1/models/{entry['id']}")).json() == entry
    assert (await server.get("/v1/models/french")).json() == card(server, "french", root="french", parent="uno")
    unknown = await server.get("/v1/models/three")
    assert (unknown.status, unknown.json()["error"]["code"]) == (404, "model_not_found")


@same_loop
async def test_adapter_of_several_models(server: RunningServer) -> None:
    message = "several models have an adapter `both`: give one of one, two as `model`, and the adapter as `adapters`"
    for answer in (
        await server.get("/v1/models/both"),
        await server.post("/v1/completions", {"prompt": "Hi", "model": "both"}),
    ):
        assert (answer.status, answer.json()["error"]["message"]) == (404, message)


@same_loop
@pytest.mark.parametrize(
    ("path", "name", "script"),
    [
        ("/v1/completions", "french", "one/adapters/french/model.py"),
        ("/v1/completions", "german", "two/adapters/german/model.py"),
        ("/v1/completions", "two", None),
        ("/predictions/french", None, None),
    ],
)
async def test_adapter_chooses_its_model_among_several(
    server: RunningServer, path: str, name: str | None, script: str | None
) -> None:
    answer = await server.post(path, {"prompt": "Hi", "model": name})
    if path.startswith("/predictions"):  # whose names are of models alone
        assert answer.status == 404
    elif script is None:
        assert answer.json()["model"] == name
    else:
        assert answer.json()["by"].endswith(script)


async def test_adapters_come_and_go(serve: Serve, model_dir: ModelDirectory) -> None:
    directory = model_dir({"serving.properties": SCRIPTED, "later/model.py": SCRIPT})
    server = await serve(directory)
    assert (await server.get("/v1/models/new")).status == 404
    added = await server.post("/models/model/adapters", {"name": "new", "src": "later"})
    assert added.status == 200
    new = (await server.get("/v1/models/new")).json()
    assert (new["root"], new["parent"]) == ("later", "model")  # no path of the server's host
    answer = await server.post("/v1/completions", {"prompt": "Hi", "model": "nev"})
    message = "model `nev` is not served. Did you mean `new`? Served: model, new"
    assert (answer.status, answer.json()["error"]["message"]) == (404, message)
    async with server.client.delete("/models/model/adapters/new") as removed:
        assert removed.status == 200
    assert [each["id"] for each in (await server.get("/v1/models")).json()["data"]] == ["model"]


@pytest.mark.parametrize("value", ["How?\\n Why, and when? \\n", '["How?", "", "Why, and when?"]'])
async def test_example_questions(serve: Serve, model_dir: ModelDirectory, value: str) -> None:
    server = await serve(model_dir({"serving.properties": f"{SCRIPTED}option.example_questions={value}\n"}))
    (entry,) = (await server.get("/v1/models")).json()["data"]
    assert entry["example_questions"] == ["How?", "Why, and when?"]


async def test_model_that_its_own_function_serves(serve: Serve, model_dir: ModelDirectory) -> None:
    server = await serve(model_dir({"model.py": HANDLE}))
    (entry,) = (await server.get("/v1/models")).json()["data"]
    assert (entry["id"], entry["parent"], entry["max_model_len"]) == ("model", None, None)


strict_server = module_server(
    {
        "serving.properties": f"{SCRIPTED}option.strict_model_name=true\noption.served_model_name=llama\n{TEMPLATE}",
        "adapters/french/model.py": SCRIPT,
    }
)


@same_loop
@pytest.mark.parametrize("name", ["", "tgi", "dummy", "http://host:8080", "gpt-4"])
@pytest.mark.parametrize(("path", "body"), ROUTES)
@pytest.mark.parametrize("headers", [{}, {"X-Amzn-SageMaker-Target-Model": "model"}])
async def test_only_its_own_names(
    strict_server: RunningServer, path: str, body: dict[str, Any], name: str, headers: dict[str, str]
) -> None:
    answer = await strict_server.post(path, body | {"model": name}, headers=headers)
    error = answer.json()["error"]
    assert (answer.status, error["code"]) == (404, "model_not_found")
    assert error["message"].startswith(f"model `{name}` is not served.")
    assert error["message"].endswith(" Served: llama, model, french")
    assert ("option.strict_model_name=true" in error["message"]) == (name != "gpt-4")


@pytest.mark.parametrize(("path", "body"), ROUTES)
async def test_any_name_as_in_tgi(serve: Serve, model_dir: ModelDirectory, path: str, body: dict[str, Any]) -> None:
    server = await serve(model_dir({"serving.properties": SCRIPTED + "option.tgi_compat=true\n" + TEMPLATE}))
    assert (await server.post(path, body | {"model": "meta-llama/Llama-3.1-8B"})).status == 200


@same_loop
@pytest.mark.parametrize(("name", "told"), [(None, "llama"), ("model", "model")])
@pytest.mark.parametrize(("path", "body"), ROUTES)
async def test_its_own_names(
    strict_server: RunningServer, path: str, body: dict[str, Any], name: str | None, told: str
) -> None:
    answer = await strict_server.post(path, body | {"model": name})
    assert (answer.status, answer.json()["model"]) == (200, told)
    assert "by" in (await strict_server.post(path, body | {"model": "french"})).json()


@same_loop
async def test_no_name_where_several_are_served(server: RunningServer) -> None:
    answer = await server.post("/v1/completions", {"prompt": "Hi", "model": ""})
    message = "several models are served; name one of: one, two"
    assert (answer.status, answer.json()["error"]["message"]) == (404, message)


async def test_answer_of_an_adapter_that_writes_none_itself(serve: Serve, model_dir: ModelDirectory) -> None:
    names = "option.served_model_name=llama\n"
    server = await serve(model_dir({"serving.properties": SCRIPTED + names, "adapters/french/model.py": ""}))
    answer = await server.post("/v1/completions", {"prompt": "Hi", "model": "french"})
    assert (answer.status, answer.json()["model"]) == (200, "french")
