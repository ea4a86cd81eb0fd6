"""The metrics of front ends that share the engines: each answers scrapes with the sums over all of them."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from pathlib import Path

import msgspec

from lmi_handlers.metrics.declared import DJL_METRICS, OWN_METRICS, Scrape
from lmi_handlers.metrics.vllm_names import VLLM_METRICS
from lmi_handlers.process.front import Front

SECONDS = 5.0  # to wait for another front end's metrics; frozen ones are omitted
PING = b"\n"  # a request that is echoed
END = "# EOF"  # the last line of OpenMetrics
# Families whose values describe an engine that front ends share, or cannot be added.
OF_ENGINES = {
    name
    for each in (*OWN_METRICS, *DJL_METRICS, *VLLM_METRICS.values())
    if each.of_engine
    for name in (each.name, each.sample)
} | {"process_start_time_seconds", "process_max_fds"}


Write = Callable[[Scrape], Awaitable[tuple[str, bytes]]]


class FrontEndMetrics:
    """A socket through which other front ends read this one's metrics, and the parent checks that it is alive."""

    def __init__(self, front: Front, write: Write) -> None:
        self._path = _path(front.folder, front.number)
        self._write = write
        self._server: asyncio.Server | None = None

    async def listen(self) -> None:
        self._path.unlink(missing_ok=True)  # left by a front end that died
        self._server = await asyncio.start_unix_server(self._answer, self._path)

    def stop(self) -> None:
        if self._server is not None:
            self._server.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            scrape = await reader.readline()
            if scrape != PING:
                _, scrape = await self._write(msgspec.json.decode(scrape, type=Scrape))
            writer.write(scrape)
            await writer.drain()
        writer.close()


async def others(front: Front, scrape: Scrape) -> list[bytes]:
    """Return the metrics of the other front ends, except those that are starting."""
    numbers = (number for number in range(front.total) if number != front.number)
    request = msgspec.json.encode(scrape) + b"\n"
    found = await asyncio.gather(*(_read(_path(front.folder, number), request) for number in numbers))
    return [each for each in found if each]


async def answers(folder: Path, number: int, seconds: float) -> bool:
    """Return whether a front end answers within a few seconds."""
    return await _read(_path(folder, number), PING, seconds) == PING


async def _read(path: Path, request: bytes, seconds: float = SECONDS) -> bytes:
    with suppress(OSError, TimeoutError):
        async with asyncio.timeout(seconds):
            reader, writer = await asyncio.open_unix_connection(path)
            try:
                writer.write(request)
                return await reader.read()
            finally:
                writer.close()
    return b""


def add_up(expositions: Iterable[bytes]) -> bytes:
    """Return one exposition with the sums of the samples of several; for values that cannot be added, the highest."""
    heads: dict[str, list[str]] = {}
    samples: dict[str, dict[str, float]] = {}
    end = ""
    for exposition in expositions:
        family = ""
        for line in exposition.decode().splitlines():
            if line == END:
                end = f"{END}\n"
            elif line.startswith("#"):
                family = line.split(" ", 3)[2]
                head = heads.setdefault(family, [])
                if line not in head:
                    head.append(line)
            elif line:
                key, _, text = line.rpartition(" ")
                values, value = samples.setdefault(family, {}), _number(text)
                before = values.get(key)
                if before is not None:
                    value = max(before, value) if family in OF_ENGINES else before + value
                values[key] = value
    written: list[str] = []
    for family, head in heads.items():
        written += head
        written += [f"{key} {value}" for key, value in samples.get(family, {}).items()]
    return ("\n".join(written) + f"\n{end}").encode()


def _number(text: str) -> float:
    try:
        return int(text)
    except ValueError:
        return float(text)


def _path(folder: Path, number: int) -> Path:
    return folder / f"metrics-{number}"
