"""The routes that manage adapters, with models of formatters only, and with a `handle` function."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from lmi_plugins.backends.scripted import Script
from tests.conftest import SCRIPTED, Answer, ModelDirectory, RunningServer, Serve
from tests.handlers.lmi.test_front_end_errors import front_end

ADAPTERS = "/models/model/adapters"
BACKSLASH = "\\"
OTHER_HOST = "192.0.2.7"

FORMATTER = """\
from djl_python.output_formatter import output_formatter

@output_formatter
def f(response_data: dict) -> dict:
    return {"by": "NAME"} | response_data
"""

HANDLE = """\
import os
from pathlib import Path
from djl_python import Input, Output

adapters = {}

def register_adapter(inputs):
    source = Path(inputs.get_property("src"))
    if source.name == "two":
        marker = source / "taken"
        if marker.exists():
            marker.unlink()
            return Output().error("the second process refuses")
        marker.touch()
    adapters[inputs.get_property("name")] = source.name
    return Output().add("changed")

update_adapter = register_adapter

def unregister_adapter(inputs):
    del adapters[inputs.get_property("name")]
    return Output().add("changed")

def handle(inputs):
    if inputs.is_empty():
        return None
    return Output().add_as_json({"process": os.getpid(), "adapters": adapters})
"""


@pytest.fixture
def directory(model_dir: ModelDirectory) -> Path:
    """Adapters with formatters, beside the one that is loaded from the start."""
    files = {f"{folder}/model.py": FORMATTER.replace("NAME", folder) for folder in ("adapters/french", "one", "two")}
    wrong = {
        "wrong/model.py": "import nothing_of_this_name\n",
        "empty/notes.txt": "",
        "weights/adapter_config.json": "",
    }
    return model_dir({"serving.properties": SCRIPTED, **files, **wrong})


@pytest.fixture
async def server(serve: Serve, directory: Path) -> RunningServer:
    return await serve(directory)


async def delete(server: RunningServer, path: str) -> Answer:
    async with server.client.delete(path) as response:
        return Answer(response.status, response.headers, await response.read())


async def adapter_text(server: RunningServer, adapter: str) -> str:
    answer = await server.post("/invocations", {"inputs": "a", "adapters": adapter})
    return str(answer.json()["by"]) if answer.status == 200 else str(answer.json()["error"])


async def sources(server: RunningServer) -> dict[str, str]:
    listed = (await server.get(ADAPTERS)).json()["adapters"]
    return {each["name"]: Path(each["src"]).name for each in listed}


async def test_adapter_comes_changes_and_goes(server: RunningServer, directory: Path) -> None:
    assert await sources(server) == {"french": "french"}
    answer = await server.post(f"{ADAPTERS}?name=danish&src={directory / 'one'}&preload=false&pin=false")
    assert (answer.status, answer.json()) == (200, {"status": "Adapter danish registered"})
    assert await adapter_text(server, "danish") == "one"
    answer = await server.get(f"{ADAPTERS}/danish")
    assert (answer.status, answer.json()) == (
        200,
        {"name": "danish", "src": str(directory / "one"), "preload": True, "pin": False},
    )
    answer = await server.post(f"{ADAPTERS}/danish/update", {"src": "two"})
    assert (answer.status, answer.json()) == (200, {"status": "Adapter danish updated"})
    assert await adapter_text(server, "danish") == "two"
    assert await sources(server) == {"danish": "two", "french": "french"}
    for name in ("danish", "french"):
        answer = await delete(server, f"{ADAPTERS}/{name}")
        assert (answer.status, answer.json()) == (200, {"status": f"Adapter {name} unregistered"})
        assert await adapter_text(server, name) != "two"
    assert await sources(server) == {}
    assert (await server.post(ADAPTERS, {"name": "french", "src": "adapters/french"})).status == 200
    assert await adapter_text(server, "french") == "adapters/french"


@pytest.mark.parametrize(
    ("path", "body", "status", "message"),
    [
        (ADAPTERS, {"name": "french", "src": "one"}, 409, "the adapter `french` already exists: update or delete it"),
        (
            "/models/mudel/adapters",
            {"name": "a", "src": "one"},
            404,
            "model `mudel` is not served. Did you mean `model`?",
        ),
        (ADAPTERS, {"name": "a"}, 400, "`src` is required"),
        (ADAPTERS, {"src": "one"}, 400, "`name` is required"),
        (ADAPTERS, {"name": "", "src": "one"}, 400, "`name` must have at least 1 character"),
        (ADAPTERS, {"name": "a" * 256, "src": "one"}, 400, "`name` must have at most 255 characters. Given: 'aaa"),
        *(
            (ADAPTERS, {"name": name, "src": "one"}, 400, f"`name` must be printable, without / or {BACKSLASH}")
            for name in ("a/b", f"a{BACKSLASH}b", ".", "..", "a\n", "\0", " a", "a ", " ", "\u202ea")
        ),
        (
            ADAPTERS,
            {"name": "a", "src": "none"},
            400,
            "`src` must be a folder or an archive on the server's host, an s3:// URL, or the URL of an archive. Given: "
            "'none'",
        ),
        (ADAPTERS, {"name": "a", "src": "\0"}, 400, "`src` must be a folder"),
        (ADAPTERS, {"name": "a", "src": "o" * 5000}, 400, "`src` must be a folder"),
        (ADAPTERS, {"name": "a", "src": "o" * 300 + ".zip"}, 400, "`src` must be a folder"),
        (ADAPTERS, {"name": "a", "src": "one", "pin": "often"}, 400, "`pin` must be a valid boolean"),
        (f"{ADAPTERS}?limit=0", {"name": "a", "src": "one"}, 400, "`limit` is not a field of this request."),
        (ADAPTERS, {"name": "a", "src": "one", "perload": True}, 400, "`perload` is not a field of this request."),
        (f"{ADAPTERS}/frensh/update", {"src": "one"}, 404, "there is no adapter `frensh`. Did you mean `french`?"),
        (f"{ADAPTERS}/french/update", {"src": "none"}, 400, "`src` must be a folder"),
    ],
)
async def test_refused(server: RunningServer, path: str, body: dict[str, Any], status: int, message: str) -> None:
    answer = await server.post(path, body)
    assert (answer.status, answer.json()["code"]) == (status, status)
    assert answer.json()["error"].startswith(message)
    assert await sources(server) == {"french": "french"}


@pytest.mark.parametrize(
    ("source", "status", "message"),
    [
        ("wrong", 424, "No module named 'nothing_of_this_name'"),
        ("empty", 400, "empty contains neither adapter_config.json nor model.py"),
        ("weights", 400, "the scripted backend does not support LoRA adapters"),
    ],
)
async def test_failure_changes_nothing(server: RunningServer, source: str, status: int, message: str) -> None:
    for path, body in ((ADAPTERS, {"name": "new", "src": source}), (f"{ADAPTERS}/french/update", {"src": source})):
        answer = await server.post(path, body)
        assert answer.status == status
        assert message in answer.json()["error"]
        assert await sources(server) == {"french": "french"}
        assert await adapter_text(server, "french") == "adapters/french"


async def test_unknown_adapter(server: RunningServer) -> None:
    for answer in (await server.get(f"{ADAPTERS}/frensh"), await delete(server, f"{ADAPTERS}/frensh")):
        assert answer.status == 404
        message = "there is no adapter `frensh`. Did you mean `french`? Known: french"
        assert answer.json() == front_end(message, 404, "ModelNotFoundException")


LATE_IMPORT = """\
from djl_python.output_formatter import output_formatter

@output_formatter
def f(response_data: dict) -> dict:
    from helper import NAME
    return {"by": NAME}
"""


async def test_formatter_of_an_unloaded_adapter_still_imports(server: RunningServer, directory: Path) -> None:
    (directory / "one" / "model.py").write_text(LATE_IMPORT)
    (directory / "one" / "helper.py").write_text("import other\nNAME = other.NAME\n")
    (directory / "one" / "other.py").write_text("NAME = 'other'\n")
    assert (await server.post(ADAPTERS, {"name": "a", "src": "one"})).status == 200
    server.scripted.enqueue(script := Script("said", hold=True))
    asked = asyncio.create_task(
        server.post("/invocations", {"inputs": "x", "adapters": "a"}, headers={"x-request-id": "late"})
    )
    await script.started.wait()
    assert (await delete(server, f"{ADAPTERS}/a")).status == 200
    await server.post("/v1/abort_request", {"request_id": "late"})
    assert (await asked).json() == {"by": "other"}


async def test_list_by_pages(server: RunningServer) -> None:
    for name in ("b", "d", "a", "c"):
        assert (await server.post(ADAPTERS, {"name": name, "src": "one"})).status == 200
    path, found = f"{ADAPTERS}?limit=2", list[list[str]]()
    while path:
        page = (await server.get(path)).json()
        found.append([each["name"] for each in page["adapters"]])
        token = page.get("nextPageToken")
        path = f"{ADAPTERS}?limit=2&next_page_token={token}" if token else ""
    assert found == [["a", "b"], ["c", "d"], ["french"]]
    assert (await server.get(f"{ADAPTERS}?next_page_token=5")).json() == {"adapters": []}
    for query, message in (
        ("limit=0", "`limit` must be greater than or equal to 1. Given: '0'"),
        ("limit=x", "`limit` must be a valid integer"),
        ("next_page_token=-1", "`next_page_token` must be greater than or equal to 0. Given: '-1'"),
        ("page=1", "`page` is not a field of this request."),
    ):
        answer = await server.get(f"{ADAPTERS}?{query}")
        assert answer.status == 400
        assert answer.json()["error"].startswith(message)


async def test_routes_without_the_name_of_the_only_model(server: RunningServer, directory: Path) -> None:
    assert (await server.post("/adapters", {"name": "a", "src": "one"})).status == 200
    shown = {"name": "a", "src": str(directory / "one"), "preload": True, "pin": False}
    assert (await server.get("/adapters/a")).json() == shown
    assert (await server.get("/adapters?limit=1")).json() == {"adapters": [shown], "nextPageToken": "1"}
    assert (await server.post("/adapters/a/update?src=two")).status == 200
    assert await adapter_text(server, "a") == "two"
    assert (await delete(server, "/adapters/a")).status == 200
    assert await sources(server) == {"french": "french"}
    assert (await server.post("/models", {"url": str(directory), "model_name": "other"})).status == 200
    answer = await server.post("/adapters", {"name": "a", "src": "one"})
    message = "/adapters is for servers of one model; here name one of model, other, as in /models/{model}/adapters"
    assert (answer.status, answer.json()) == (400, front_end(message, 400, "BadRequestException"))


async def test_adapter_without_weights_is_pinned_by_name(server: RunningServer) -> None:
    async def pinned() -> dict[str, bool]:
        return {each["name"]: each["pin"] for each in (await server.get(ADAPTERS)).json()["adapters"]}

    assert (await server.post(f"{ADAPTERS}?name=a&src=one&pin=true")).status == 200
    assert await pinned() == {"a": True, "french": False}
    assert (await server.post(f"{ADAPTERS}/french/update?pin=true")).status == 200
    assert (await server.post(f"{ADAPTERS}/a/update?pin=false")).status == 200
    assert await pinned() == {"a": False, "french": True}
    assert (await server.post(f"{ADAPTERS}/a/update")).status == 200  # read again
    assert await adapter_text(server, "a") == "one"
    (described,) = (await server.get("/models/model")).json()[0]["models"]
    assert [each["pin"] for each in described["adapters"]] == [False, True]
    assert (await delete(server, f"{ADAPTERS}/french")).status == 200
    assert (await server.post(ADAPTERS, {"name": "french", "src": "one"})).status == 200
    assert await pinned() == {"a": False, "french": False}


async def test_answers_have_the_alias_of_sagemaker(server: RunningServer) -> None:
    alias = {"X-Amzn-SageMaker-Adapter-Alias": "my-french"}
    answer = await server.post(ADAPTERS, {"name": "a", "src": "one"}, headers=alias)
    assert answer.json() == {"status": "Adapter my-french registered"}
    answer = await server.post(f"{ADAPTERS}/a/update", {}, headers=alias)
    assert answer.json() == {"status": "Adapter my-french updated"}


async def test_one_of_many_at_once_gets_the_name(server: RunningServer) -> None:
    answers = await asyncio.gather(*(server.post(ADAPTERS, {"name": "a", "src": "one"}) for _ in range(5)))
    assert sorted(answer.status for answer in answers) == [200, 409, 409, 409, 409]


async def test_other_hosts_are_refused(server: RunningServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(web.BaseRequest, "remote", OTHER_HOST)
    answers = [
        await server.get(ADAPTERS),
        await server.get(f"{ADAPTERS}/french"),
        await server.post(ADAPTERS, {"name": "a", "src": "one"}),
        await server.post(f"{ADAPTERS}/french/update", {"src": "one"}),
        await delete(server, f"{ADAPTERS}/french"),
    ]
    for answer in answers:
        assert answer.status == 403
        assert answer.json()["error"].endswith("from the server's own host; open_management=true allows other hosts")
    assert await adapter_text(server, "french") == "adapters/french"


async def test_opened_to_other_hosts(serve: Serve, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (directory / "serving.properties").write_text(f"{SCRIPTED}open_management=true\n")
    server = await serve(directory)
    monkeypatch.setattr(web.BaseRequest, "remote", OTHER_HOST)
    assert (await delete(server, f"{ADAPTERS}/french")).status == 200


async def test_handle_function(serve: Serve, model_dir: ModelDirectory) -> None:
    files = {"one/x": "", "two/x": ""}
    server = await serve(model_dir({"serving.properties": "minWorkers=2\nmaxWorkers=2\n", "model.py": HANDLE, **files}))

    async def known() -> list[Any]:
        """Return the adapters that each process has registered."""
        found: dict[int, Any] = {}
        while len(found) < 2:
            answers = await asyncio.gather(*(server.post("/invocations", {}) for _ in range(4)))
            found |= {answer.json()["process"]: answer.json()["adapters"] for answer in answers}
        return list(found.values())

    assert (await server.post(ADAPTERS, {"name": "a", "src": "one"})).status == 200
    assert await known() == [{"a": "one"}] * 2
    for path in (ADAPTERS, f"{ADAPTERS}/a/update"):
        answer = await server.post(path, {"src": "two"} | ({"name": "b"} if path == ADAPTERS else {}))
        assert answer.status == 424
        assert "_adapter answered 424: " in answer.json()["error"]
        assert "the second process refuses" in answer.json()["error"]
        assert await known() == [{"a": "one"}] * 2
    assert await sources(server) == {"a": "one"}
    assert (await delete(server, f"{ADAPTERS}/a")).status == 200
    assert await known() == [{}] * 2


TELLING = """\
from djl_python import Input, Output

seen = []

def register_adapter(inputs):
    content = {key: inputs.get_as_string(key) for key in inputs.get_content().get_keys()}
    properties = {name: inputs.get_property(name) for name in ("name", "src", "pin", "tier")}
    seen.append([inputs.get_function_name(), properties, content])
    if properties["tier"] == "too large":
        raise MemoryError
    return Output().add("done")

update_adapter = unregister_adapter = register_adapter

def handle(inputs):
    return None if inputs.is_empty() else Output().add_as_json(seen)
"""
SOURCE = "s3://bucket/adapters/french?version=2"


async def test_handle_function_gets_its_source_and_fields_as_they_are(serve: Serve, model_dir: ModelDirectory) -> None:
    server = await serve(model_dir({"model.py": TELLING}))
    body = {"name": "fr", "src": SOURCE, "pin": True, "tier": "gold"}
    assert (await server.post(f"{ADAPTERS}?alias=f", body)).status == 200
    shown = {"name": "fr", "src": SOURCE, "preload": True, "pin": True}
    assert (await server.get(ADAPTERS)).json() == {"adapters": [shown]}
    assert (await server.get(f"{ADAPTERS}/fr")).json() == shown
    assert (await server.post(f"{ADAPTERS}/fr/update", {"tier": "silver"})).status == 200
    assert (await server.post(f"{ADAPTERS}/fr/update?src=elsewhere")).status == 200
    assert await sources(server) == {"fr": "elsewhere"}
    assert (await delete(server, f"{ADAPTERS}/fr")).status == 200
    properties = {"name": "fr", "src": SOURCE, "pin": "true", "tier": "gold"}
    changed = {"tier": "silver"}
    assert (await server.post("/invocations", {})).json() == [
        ["register_adapter", properties, properties | {"alias": "f"}],
        ["update_adapter", properties | changed, properties | {"alias": "f"} | changed],
        [
            "update_adapter",
            properties | changed | {"src": "elsewhere"},
            properties | {"alias": "f"} | changed | {"src": "elsewhere"},
        ],
        ["unregister_adapter", {"name": "fr", "src": None, "pin": None, "tier": None}, {}],
    ]
    large = await server.post(ADAPTERS, body | {"tier": "too large"})
    assert (large.status, "register_adapter answered 507" in large.json()["error"]) == (507, True)
    unknown = await server.post("/invocations?adapter=fr", {})
    assert (unknown.status, unknown.json()["error"][:29]) == (424, "there is no adapter `fr`. Kno")


@pytest.mark.parametrize(
    ("body", "message"),
    [({"name": "fr"}, "`src` is required"), ({"name": "f/r", "src": SOURCE}, "`name` must be printable")],
)
async def test_handle_functions_adapter_has_a_name_and_a_source(
    serve: Serve, model_dir: ModelDirectory, body: dict[str, str], message: str
) -> None:
    server = await serve(model_dir({"model.py": TELLING}))
    answer = await server.post(ADAPTERS, body)
    assert (answer.status, message in answer.json()["error"]) == (400, True)
