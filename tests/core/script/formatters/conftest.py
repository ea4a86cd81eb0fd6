import shutil

import pytest

from tests.conftest import SCRIPTED, ModelDirectory, RunningServer, Serve
from tests.core.script.formatters.served_scripts import SCRIPTS, ServeScript


@pytest.fixture
def serve_script(serve: Serve, model_dir: ModelDirectory) -> ServeScript:
    """Serve a copy of a script's folder by `await serve_script("legacy", "option.x=1")`."""

    async def start(name: str, properties: str = "", model: str = "model") -> RunningServer:
        directory = model_dir({"serving.properties": SCRIPTED + properties}, model)
        shutil.copytree(SCRIPTS / name, directory, dirs_exist_ok=True)
        return await serve(directory)

    return start
