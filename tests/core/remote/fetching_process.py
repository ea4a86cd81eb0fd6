"""Processes that fetch a model and then wait, for tests that end them."""

import asyncio
import logging
import sys
from pathlib import Path
from types import TracebackType
from typing import Self

from lmi_core.configuration.location import RemoteModel
from lmi_core.errors import ConfigurationError
from lmi_core.remote.fetching import fetch


class FetchingProcess:
    """A process that prints its copy's `folder` when complete, and holds the copy until it is closed."""

    def __init__(self, source: str) -> None:
        self._source = source

    async def __aenter__(self) -> Self:
        pipe = asyncio.subprocess.PIPE
        self.process = await asyncio.create_subprocess_exec(
            *(sys.executable, __file__, self._source), stdin=pipe, stdout=pipe, stderr=pipe
        )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.process.communicate(b"")  # closes standard input, which ends the process

    async def folder(self) -> Path:
        assert self.process.stdout is not None
        return Path((await self.process.stdout.readline()).decode().strip())

    async def logged(self, text: str) -> None:
        assert self.process.stderr is not None
        while text.encode() not in (line := await self.process.stderr.readline()):
            assert line, text

    async def kill(self) -> None:
        self.process.kill()
        await self.process.wait()


def main(source: str) -> None:
    logging.basicConfig(level="INFO")
    try:
        print(asyncio.run(fetch(RemoteModel(source))), flush=True)
    except ConfigurationError as error:
        print(error.message, flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main(*sys.argv[1:])
