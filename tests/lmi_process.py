"""`lmi serve` in a process of its own."""

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import aiohttp

LMI = Path(sys.executable).with_name("lmi")
MAX_LOG = 16 * 2**20  # bytes that are read ahead of a test, as a full pipe would stop processes of engines
END_SECONDS = 60  # after which a killed server's children still write to its log, and are left behind


class LmiProcess:
    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self.log: list[str] = []

    async def line_with(self, text: str) -> str:
        """Return the log's next line that contains the text; fail with the whole log if none does."""
        assert self.process.stderr is not None
        while line := (await self.process.stderr.readline()).decode():
            self.log.append(line)
            if text in line:
                return line
        raise AssertionError("".join(self.log))

    async def ready(self) -> str:
        """Wait until the models are loaded, and return the URL."""
        line = await self.line_with("Ready")
        return next(word for word in line.split() if word.startswith("http://"))


@asynccontextmanager
async def lmi_serve(*arguments: object, environment: Mapping[str, str] | None = None) -> AsyncIterator[LmiProcess]:
    process = await asyncio.create_subprocess_exec(
        LMI,
        "serve",
        *map(str, arguments),
        stderr=asyncio.subprocess.PIPE,
        limit=MAX_LOG,
        start_new_session=True,
        env={**os.environ, **(environment or {})},
    )
    try:
        yield LmiProcess(process)
    finally:
        if process.returncode is None:
            process.kill()
        async with asyncio.timeout(END_SECONDS):
            await process.communicate()


@asynccontextmanager
async def client_of(directory: Path) -> AsyncIterator[aiohttp.ClientSession]:
    """Yield a client of `lmi serve DIR`."""
    async with clients_of(directory) as (client, _):
        yield client


@asynccontextmanager
async def clients_of(directory: Path, *arguments: object) -> AsyncIterator[tuple[aiohttp.ClientSession, str]]:
    """Yield a client of `lmi serve DIR`, whose log is drained, as a full pipe would block the server.

    With it comes the address of gRPC; "" where the arguments do not ask for it.
    """
    async with lmi_serve(directory, "--port", 0, *arguments) as server:
        url = await server.ready()
        grpc_address = server.log[-1].partition("gRPC on ")[2].partition(" ")[0]
        log = asyncio.create_task(server.line_with("no line is like this"))
        async with aiohttp.ClientSession(url, timeout=aiohttp.ClientTimeout(60)) as client:
            yield client, grpc_address
        log.cancel()
        with suppress(asyncio.CancelledError):
            await log
