"""`lmi serve` with gRPC, and without pages."""

import subprocess
import sys

import aiohttp
import pytest

from lmi_core.errors import ConfigurationError
from lmi_core.plugins.loading import load_plugins
from lmi_core.registry.dispatcher import Dispatcher
from lmi_core.serving.model import Model
from lmi_handlers.cli.plans import launch_plans
from lmi_handlers.cli.serving import check_grpc, create_server
from lmi_handlers.container.launch import read_launch
from lmi_handlers.container.search import Arguments
from tests.conftest import SCRIPTED, ModelDirectory
from tests.lmi_process import clients_of


def test_grpc_is_imported_only_where_it_is_asked_for() -> None:
    code = "import sys, lmi_handlers.cli.serving; print('grpc' in sys.modules, 'tritonclient' in sys.modules)"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout == "False False\n"


def test_libraries_that_are_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    check_grpc()
    monkeypatch.setitem(sys.modules, "lmi_handlers.kserve_grpc.server", None)
    with pytest.raises(ConfigurationError, match=r"gRPC needs other libraries: pip install 'lmi-handlers\[grpc\]'\. "):
        check_grpc()


@pytest.mark.parametrize(("port", "addresses"), [(None, []), (8001, ["0.0.0.0:8001"])])
def test_servers(model_dir: ModelDirectory, port: int | None, addresses: list[str]) -> None:
    directory = model_dir({"serving.properties": SCRIPTED})
    launch = read_launch(Arguments((str(directory),), host="0.0.0.0", grpc_port=port), {})
    server = create_server(Dispatcher({}), load_plugins(), launch)
    assert [other.address for other in server.others] == addresses


@pytest.mark.parametrize(("pages", "media_type"), [(None, "text/html"), (False, "text/plain")])
async def test_pages(model_dir: ModelDirectory, pages: bool | None, media_type: str) -> None:
    plugins = load_plugins()
    launch = read_launch(Arguments((str(model_dir({"serving.properties": SCRIPTED})),), port=0, pages=pages), {})
    plans, _ = launch_plans(launch, {}, plugins)
    server = create_server(Dispatcher({plan.name: Model(plan, plugins.formatters) for plan in plans}), plugins, launch)
    await server.listen()
    try:
        async with aiohttp.ClientSession(server.url, headers={"Accept": "text/html"}) as client:
            async with client.get("/") as root:
                assert (root.status, root.content_type) == (200, media_type)
            async with client.get("/pages/chat/main.js") as file:
                assert file.status == (404 if pages is False else 200)
    finally:
        await server.stop()


async def test_options_also_hold_for_models_that_are_registered_later(model_dir: ModelDirectory) -> None:
    directory = model_dir({"serving.properties": SCRIPTED + "option.scripted_text=from the file\n"})
    registered = {"model_name": "later", "url": str(directory)}
    cases: list[tuple[dict[str, str], str]] = [
        ({}, "from the command line"),
        ({"option.scripted_text": "from the request"}, "from the request"),
    ]
    async with clients_of(directory, "-o", "option.scripted_text=from the command line") as (client, _):
        for overriding, text in cases:
            async with client.post("/models", params=registered | overriding) as answer:
                assert answer.status == 200, await answer.text()
            async with client.post("/models/later/invoke", json={"inputs": "Hi"}) as answer:
                assert await answer.json() == {"generated_text": text}
            async with client.delete("/models/later") as answer:
                assert answer.status == 200, await answer.text()
