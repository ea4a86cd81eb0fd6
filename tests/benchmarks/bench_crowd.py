"""`python -m tests.benchmarks.bench_crowd`: what clients that a full server refuses cost those that it has admitted.

A few streams hold every place of `lmi serve` on the torch backend. In turns they have the server for themselves, and
share it with a crowd of clients whose requests are refused, and who ask again as soon as they may.
"""

import asyncio
import json
import statistics
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

from tests.benchmarks.crowd import HEAD
from tests.lmi_process import lmi_serve
from tests.plugins.torch_engine.tiny_models import save_model, save_tokenizer

STREAMS = 5  # of which four run, and one waits
LENGTH = 65_536  # tokens, more than are generated
PROPERTIES = """\
option.rolling_batch=torch
option.max_rolling_batch_size=4
job_queue_size=1
option.max_stream_delay=0
option.predict_timeout=1200
option.first_token_timeout=1200
"""
SETTLED = 50  # tokens of each stream, after which it is measured
NICE = ("nice", "-n", "19")  # the crowd has a machine of its own, elsewhere; here it gets what nobody else needs


@dataclass
class Turn:
    """The tokens of the streams that run, in a time with or without the crowd."""

    seconds: float
    tokens: int
    gaps: list[float]  # seconds between two tokens of a stream

    @property
    def rate(self) -> float:
        return self.tokens / self.seconds


@dataclass
class Finding:
    """What was measured, in turns."""

    alone: list[Turn] = field(default_factory=list)
    crowded: list[Turn] = field(default_factory=list)
    refused: int = 0
    answered: int = 0  # of the crowd

    @property
    def throughput(self) -> float:
        """The tokens beside the crowd, as a share of those without it."""
        alone, crowded = (sum(turn.rate for turn in turns) for turns in (self.alone, self.crowded))
        return crowded / alone

    def gap(self, quantile: float, *, crowded: bool) -> float:
        """Return a quantile of the seconds between two tokens."""
        gaps = sorted(gap for turn in (self.crowded if crowded else self.alone) for gap in turn.gaps)
        return gaps[min(len(gaps) - 1, int(quantile * len(gaps)))]


def save_directory(folder: Path) -> Path:
    """Save a tiny model with a long context."""
    save_tokenizer(folder)
    save_model(folder, "llama")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"max_position_embeddings": LENGTH}))
    (folder / "serving.properties").write_text(PROPERTIES)
    return folder


async def measure(folder: Path, count: int, rounds: int, seconds: float) -> Finding:
    """Measure with a crowd of `count` clients in `rounds` pairs of turns, of so many seconds each."""
    found = Finding()
    async with lmi_serve(save_directory(folder / "model"), "--port", 0, "--no-access-log", forked=False) as server:
        host, _, port = (await server.ready()).removeprefix("http://").partition(":")
        times: list[list[float]] = [[] for _ in range(STREAMS)]
        reading = [asyncio.create_task(_read(host, int(port), each)) for each in times]
        while sum(len(each) > SETTLED for each in times) < STREAMS - 1:
            await asyncio.sleep(0.01)
            assert not any(each.done() for each in reading)
        async with _crowd(host, port, count) as crowd:
            for _ in range(rounds):
                found.alone.append(await _turn(times, seconds))
                await crowd.tell("ask")
                found.crowded.append(await _turn(times, seconds))
                refused, answered = (await crowd.tell("stop", hear=True)).split()
                found.refused += int(refused)
                found.answered += int(answered)
        assert not any(each.done() for each in reading), "a stream has ended"
        for each in reading:
            each.cancel()
        await asyncio.wait(reading)
    return found


async def _read(host: str, port: int, times: list[float]) -> None:
    """Note when each token of a stream comes."""
    parameters = {"max_new_tokens": LENGTH - 100, "ignore_eos_token": True}
    body = json.dumps({"inputs": "Hello world", "stream": True, "parameters": parameters}).encode()
    loop = asyncio.get_running_loop()
    reader, writer = await asyncio.open_connection(host, port)
    try:
        writer.write(HEAD % len(body) + body)
        status = await reader.readline()
        assert status.startswith(b"HTTP/1.1 200 "), status
        while line := await reader.readline():
            if line.startswith(b"{"):
                times.append(loop.time())
    finally:
        writer.transport.abort()


async def _turn(times: list[list[float]], seconds: float) -> Turn:
    """Measure for some seconds, once what was before is over."""
    await asyncio.sleep(0.2)
    before, begun = [len(each) for each in times], asyncio.get_running_loop().time()
    await asyncio.sleep(seconds)
    ended = asyncio.get_running_loop().time()
    new = [each[start:] for each, start in zip(times, before, strict=True) if len(each) > SETTLED]
    gaps = [later - earlier for each in new for earlier, later in pairwise(each)]
    return Turn(ended - begun, sum(map(len, new)), gaps)


@dataclass
class _Crowd:
    process: asyncio.subprocess.Process

    async def tell(self, line: str, *, hear: bool = False) -> str:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{line}\n".encode())
        await self.process.stdin.drain()
        return await self.hear() if hear else ""

    async def hear(self) -> str:
        assert self.process.stdout is not None
        return (await self.process.stdout.readline()).decode()


@asynccontextmanager
async def _crowd(host: str, port: str, count: int) -> AsyncIterator[_Crowd]:
    command = (*NICE, sys.executable, "-m", "tests.benchmarks.crowd", host, port, str(count))
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(*command, stdin=pipe, stdout=pipe)
    crowd = _Crowd(process)
    try:
        assert await crowd.hear() == "connected\n"
        yield crowd
    finally:
        assert process.stdin is not None
        process.stdin.close()
        await process.wait()


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        found = asyncio.run(measure(Path(folder), 2000, 12, 3))
    rates = [statistics.median(turn.rate for turn in turns) for turns in (found.alone, found.crowded)]
    print(f"refused {found.refused}, answered {found.answered}, share of the throughput {found.throughput:.3f}")
    print(f"tokens per second {rates[0]:.0f} alone, {rates[1]:.0f} beside the crowd")
    for quantile in (0.5, 0.9, 0.99):
        alone, crowded = (1000 * found.gap(quantile, crowded=each) for each in (False, True))
        print(f"milliseconds between two tokens, {quantile:.0%}: {alone:.1f} alone, {crowded:.1f} beside the crowd")


if __name__ == "__main__":
    main()
