"""`lmi` in a process of its own, forked where its environment allows it."""

import asyncio
import os
import signal
import subprocess
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from tempfile import TemporaryFile

import aiohttp

from tests.lmi_forks import LMI as LMI
from tests.lmi_forks import can_fork, fork_lmi

SECONDS = 110  # for a command, on a machine that is busy with other tests
STANDARD_STREAMS = (0, 1)  # input and output
MAX_LOG = 16 * 2**20  # bytes that are read ahead of a test, as a full pipe would stop processes of engines
END_SECONDS = 60  # after which a killed server's children still write to its log, and are left behind


def lmi(*arguments: object, given: str = "", **variables: str) -> subprocess.CompletedProcess[str]:
    """Run a command with these environment variables added, as in a wide terminal."""
    return run_lmi(arguments, os.environ | {"COLUMNS": "120"} | variables, given)


def run_lmi(
    arguments: Sequence[object], environment: Mapping[str, str], given: str = ""
) -> subprocess.CompletedProcess[str]:
    command = [str(LMI), *map(str, arguments)]
    if not can_fork(environment):
        return subprocess.run(command, input=given, capture_output=True, text=True, timeout=SECONDS, env=environment)
    with TemporaryFile() as standard_input, TemporaryFile() as output, TemporaryFile() as errors:
        standard_input.write(given.encode())
        standard_input.seek(0)
        streams = (standard_input.fileno(), output.fileno(), errors.fileno())
        with fork_lmi(arguments, environment, *streams) as connection, connection.makefile("rb") as answers:
            connection.settimeout(SECONDS)
            _, status = answers.readline(), int(answers.readline())
        for stream in (output, errors):
            stream.seek(0)
        return subprocess.CompletedProcess(command, status, output.read().decode(), errors.read().decode())


class ForkedProcess:
    """A forked `lmi`, with what `asyncio.subprocess.Process` offers of it."""

    def __init__(self, process_id: int, stderr: asyncio.StreamReader, answers: asyncio.StreamReader) -> None:
        self.pid = process_id
        self.returncode: int | None = None
        self.stderr = stderr
        self._ended = asyncio.create_task(self._end(answers))

    async def _end(self, answers: asyncio.StreamReader) -> int:
        self.returncode = int(await answers.readline())
        return self.returncode

    async def wait(self) -> int:
        return await asyncio.shield(self._ended)

    async def communicate(self) -> tuple[None, bytes]:
        rest = await self.stderr.read()
        await self.wait()
        return None, rest

    def send_signal(self, number: int) -> None:
        if self.returncode is None:
            with suppress(ProcessLookupError):  # it has ended just now
                os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


@asynccontextmanager
async def _forked(arguments: Sequence[object], environment: Mapping[str, str]) -> AsyncIterator[ForkedProcess]:
    """Yield a forked `lmi`, whose standard error is read."""
    reading, writing = os.pipe()
    stderr = asyncio.StreamReader(MAX_LOG)
    protocol = asyncio.StreamReaderProtocol(stderr)
    pipe, _ = await asyncio.get_running_loop().connect_read_pipe(lambda: protocol, os.fdopen(reading, "rb", 0))
    try:
        connection = fork_lmi(arguments, environment, *STANDARD_STREAMS, writing)
    finally:
        os.close(writing)
    answers, writer = await asyncio.open_connection(sock=connection)
    try:
        yield ForkedProcess(int(await answers.readline()), stderr, answers)
    finally:
        writer.close()
        pipe.close()


@asynccontextmanager
async def _executed(
    arguments: Sequence[object], environment: Mapping[str, str]
) -> AsyncIterator[asyncio.subprocess.Process]:
    """Yield an `lmi` that is started from scratch, whose standard error is read."""
    yield await asyncio.create_subprocess_exec(
        LMI,
        *map(str, arguments),
        stderr=asyncio.subprocess.PIPE,
        limit=MAX_LOG,
        start_new_session=True,
        env=environment,
    )


class LmiProcess:
    def __init__(self, process: asyncio.subprocess.Process | ForkedProcess) -> None:
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
async def lmi_serve(
    *arguments: object, environment: Mapping[str, str] | None = None, forked: bool = True
) -> AsyncIterator[LmiProcess]:
    """Yield `lmi serve`, forked unless it is measured or inherits the limits of this process."""
    variables = {**os.environ, **(environment or {})}
    start = _forked if forked and can_fork(variables) else _executed
    async with start(("serve", *arguments), variables) as process:
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
