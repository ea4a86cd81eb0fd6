"""A server that the tests of a module share."""

from collections.abc import AsyncIterator, Mapping
from typing import Any, Literal

import pytest
import pytest_asyncio

from tests.conftest import RunningServer, running_server


def module_server(
    files: str | Mapping[str, str],
    name: str = "model",
    *,
    loop_scope: Literal["module", "session"] = "module",
    **options: Any,
) -> Any:
    """Return a fixture: a server of the model directory `name` with these files, or with this serving.properties alone.

    Without a name, the files are those of a folder of several models. `options` are those of `running_server`.
    """
    written = {"serving.properties": files} if isinstance(files, str) else files

    @pytest_asyncio.fixture(scope="module", loop_scope=loop_scope)
    async def server(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[RunningServer]:
        directory = tmp_path_factory.mktemp("store") / name
        for path, text in written.items():
            (directory / path).parent.mkdir(parents=True, exist_ok=True)
            (directory / path).write_text(text, encoding="utf-8")
        async with running_server(directory, **options) as running:
            yield running

    return server
