"""Traffic beside models that are loaded and unloaded: `python -m tests.benchmarks.bench_loading [--write]`."""

import argparse
import asyncio
import shutil
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

import aiohttp
from aiohttp import ClientTimeout

from tests.benchmarks import machine
from tests.benchmarks.page import write_section
from tests.lmi_process import lmi_serve

HELLO = Path(__file__).parents[2] / "examples" / "hello"
STREAMS = 8
SECONDS = 10.0  # of each turn
DELAY = 0.02  # seconds between two tokens of the scripted backend
TOKENS = 500  # of a stream, after which another one begins
BODY = {
    "inputs": "Tell me a story.",
    "stream": True,
    "parameters": {"max_new_tokens": TOKENS, "ignore_eos_token": True},
}
SCRIPTED = f"option.rolling_batch=scripted\noption.scripted_delay={DELAY}\noption.scripted_text={'word ' * TOKENS}\n"
TORCH = "option.rolling_batch=torch\n"
SERVED = {"scripted": SCRIPTED, "torch": TORCH}


@dataclass
class Turns:
    """The times between tokens, in seconds, of the turns with and without models that come and go."""

    quiet: list[list[float]] = field(default_factory=list)
    beside: list[list[float]] = field(default_factory=list)
    loads: int = 0

    def quantile(self, share: float) -> tuple[float, float]:
        """Return a quantile of the quiet turns and of the others: the median of the turns'."""
        return tuple(median(_quantile(turn, share) for turn in turns) for turns in (self.quiet, self.beside))  # type: ignore[return-value]


def _quantile(values: list[float], share: float) -> float:
    return sorted(values)[min(len(values) - 1, int(len(values) * share))]


async def stream(session: aiohttp.ClientSession, until: float, gaps: list[float]) -> None:
    """Read streams one after the other, and note the times between their tokens."""
    while time.perf_counter() < until:
        async with session.post("/predictions/served", json=BODY) as response:
            assert response.status == 200, await response.text()
            before: float | None = None
            async for _ in response.content.iter_any():
                now = time.perf_counter()
                if before is not None:
                    gaps.append(now - before)
                before = now
                if now > until:
                    return


async def come_and_go(session: aiohttp.ClientSession, model: Path, over: asyncio.Event) -> int:
    """Load a model, ask it, and unload it, until it is over; return how often."""
    loads = 0
    while not over.is_set():
        for method, path, options in (
            ("POST", "/models", {"params": {"url": str(model), "model_name": "passing"}}),
            ("POST", "/predictions/passing", {"json": {"inputs": "Hello", "parameters": {"max_new_tokens": 4}}}),
            ("DELETE", "/models/passing", {}),
        ):
            async with session.request(method, path, **options) as response:
                assert response.status == 200, await response.text()
        loads += 1
    return loads


async def turn(session: aiohttp.ClientSession, seconds: float) -> list[float]:
    gaps: list[float] = []
    until = time.perf_counter() + seconds
    await asyncio.gather(*(stream(session, until, gaps) for _ in range(STREAMS)))
    return gaps


async def measure(folder: Path, served: str, rounds: int, seconds: float) -> Turns:
    """Measure turns with and without loads, one after the other, of one model that is served."""
    directory, found = folder / served / "served", Turns()
    shutil.copytree(HELLO, directory, ignore=shutil.ignore_patterns("*.py"))
    (directory / "serving.properties").write_text(SERVED[served])
    async with served_by(directory) as session:
        await turn(session, seconds / 2)
        for _ in range(rounds):
            found.quiet.append(await turn(session, seconds))
            over = asyncio.Event()
            passing = asyncio.create_task(come_and_go(session, folder / "passing", over))
            found.beside.append(await turn(session, seconds))
            over.set()
            found.loads += await passing
    return found


@asynccontextmanager
async def served_by(directory: Path) -> AsyncIterator[aiohttp.ClientSession]:
    async with lmi_serve(directory, "--port", 0, "--no-access-log", forked=False) as server:
        url = await server.ready()
        log = asyncio.create_task(server.line_with("no line is like this"))
        async with aiohttp.ClientSession(url, timeout=ClientTimeout(600)) as session:
            yield session
        log.cancel()


@contextmanager
def models() -> Iterator[Path]:
    """Yield a folder with the model that comes and goes."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        shutil.copytree(HELLO, folder / "passing", ignore=shutil.ignore_patterns("*.py"))
        (folder / "passing" / "serving.properties").write_text(TORCH)
        yield folder


def rows(served: str, found: Turns) -> Iterator[str]:
    for name, share in (("p50", 0.5), ("p99", 0.99), ("p99.9", 0.999)):
        quiet, beside = found.quantile(share)
        yield f"| {served} | {name} | {quiet * 1000:.1f} ms | {beside * 1000:.1f} ms | {beside / quiet:.2f} |"


def section(found: dict[str, Turns], rounds: int, seconds: float, load: float) -> str:
    loads = " and ".join(f"{turns.loads} times beside the {name} engine" for name, turns in found.items())
    table = "\n".join(row for name, turns in found.items() for row in rows(name, turns))
    return f"""## Loading beside traffic

`python -m tests.benchmarks.bench_loading --write` measures the time between the tokens of {STREAMS} streams while
`examples/hello` is repeatedly loaded on the torch engine, queried and unloaded on the same server:
{loads}. Quiet and busy turns alternate, {rounds} of each, of {seconds:g} s; each number is the median of the turns.

Machine: {machine.description()}; load average {load:.1f} before the start.

The scripted engine yields a token every {DELAY * 1000:g} ms and computes nothing, so its streams show the delay of the
server. The torch engine computes in a process of its own, which shares the two cores with the engine that is being
loaded, and that slows its streams down.

Only the creation of the worker's process was seen to block the event loop: for 2 ms of work, and for up to 80 ms until
the system runs the new process when the cores are busy. Otherwise, loading and unloading block the loop for less than
20 ms of its own time: `tests/handlers/management/test_held_by_loading.py`.

| engine | time between tokens | quiet | while models load and unload | ratio |
|---|---|---|---|---|
{table}
"""


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--rounds", type=int, default=5)
    arguments.add_argument("--seconds", type=float, default=SECONDS, help="of each turn")
    arguments.add_argument("--write", action="store_true", help="to docs/explanation/benchmarks.md")
    options = arguments.parse_args()
    load, found = machine.load(), dict[str, Turns]()
    with models() as folder:
        for served in SERVED:
            found[served] = asyncio.run(measure(folder, served, options.rounds, options.seconds))
    text = section(found, options.rounds, options.seconds, load)
    print(text)
    if options.write:
        write_section(text)


if __name__ == "__main__":
    main()
