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
