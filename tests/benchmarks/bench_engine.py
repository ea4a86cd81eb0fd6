"""The benchmark of the torch engine against others on the same models: `make bench-engine`."""

import argparse
import asyncio
import json
import statistics
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self

from tests.benchmarks import machine
from tests.benchmarks.contenders import ALONE, CONTENDERS, NEW_TOKENS, PROMPT_LENGTH, REQUESTS
from tests.benchmarks.engine_measures import (
    ALL_REQUESTS,
    ARRIVAL_SECONDS,
    ARRIVING_LENGTH,
    STREAMS,
    WARM_REQUESTS,
    latency,
    memory_growth,
    seconds_to_first_token,
)
from tests.benchmarks.page import write_section
from tests.benchmarks.pausing import pause, resume, resumed
from tests.benchmarks.random_models import MODELS

ROOT = Path(__file__).parents[2]
ENGINE, VLLM = "torch engine", "vLLM, eager"
SPEED_BOUNDS = {  # ratio of the engine's speed to another's
    ("small", "transformers generate"): 1.0,
    ("150M", "transformers generate"): 1.0,
    ("small", "transformers generate_batch"): 20.0,
    ("small", VLLM): 1.0,
    ("150M", VLLM): 0.8,
}
WARM_UPS = 2
SLOW_ROUNDS = 2  # rounds of the contender that runs alone, each of 15 seconds
LATENCY_BOUND, MEMORY_BOUND, START_BOUND = 3.0, 1.05, 6.0


class Contender:
    """An engine in a process of its own, which waits for its next round."""

    def __init__(self, name: str, directory: Path, python: str) -> None:
        command = [python, "-m", "tests.benchmarks.contenders", name, str(directory)]
        self.name = name
        self._process = subprocess.Popen(
            command, cwd=ROOT, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )

    def __enter__(self) -> Self:
        self._read()
        pause(self._process.pid)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        resume(self._process.pid)
        self._process.communicate()  # the end of standard input ends the process

    def run(self, number: int) -> float:
        """Run a round; return the tokens per second."""
        assert self._process.stdin is not None
        with resumed(self._process.pid):
            print(number, file=self._process.stdin, flush=True)
            result = self._read()
        assert result["tokens"] == REQUESTS * NEW_TOKENS, result
        return result["tokens"] / result["seconds"]

    def _read(self) -> dict[str, float]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"{self.name} ended; `python -m tests.benchmarks.contenders` prints the reason")
        result: dict[str, float] = json.loads(line)
        return result


class Row(NamedTuple):
    what: str
    measured: str
    ratio: str = ""
    bound: str = ""


def speeds(model: str, directory: Path, rounds: int, vllm_python: str | None) -> list[Row]:
    """Measure the contenders in turns, so that other load affects all alike, except one that must run alone."""
    measured: dict[str, list[float]] = {}
    for names in ([name for name in CONTENDERS if name != ALONE], [ALONE]):
        with ExitStack() as stack:
            contenders = []
            for name in names:
                python = vllm_python if name == VLLM else sys.executable
                if python is not None:
                    contenders.append(stack.enter_context(Contender(name, directory, python)))
            for number in range(WARM_UPS + (rounds if ALONE not in names else min(rounds, SLOW_ROUNDS))):
                for contender in contenders:
                    measured.setdefault(contender.name, []).append(contender.run(number))
    medians = {name: statistics.median(values[WARM_UPS:]) for name, values in measured.items()}
    return [_speed_row(model, name, medians) for name in CONTENDERS]


def _speed_row(model: str, name: str, medians: dict[str, float]) -> Row:
    what = f"{name}, {model} model"
    bound = SPEED_BOUNDS.get((model, name))
    bound_in_words = f">= {bound}" if bound else ""
    if name not in medians:
        return Row(what, "not installed", "", bound_in_words)
    ratio = "" if name == ENGINE else f"{medians[ENGINE] / medians[name]:.2f}"
    return Row(what, f"{medians[name]:.0f} tokens/s", ratio, bound_in_words)


def engine_rows(directory: Path) -> list[Row]:
    median, slowest = asyncio.run(latency(directory))
    early, late = asyncio.run(memory_growth(directory))
    start = asyncio.run(seconds_to_first_token(ROOT / "examples" / "hello"))
    return [
        Row(
            f"time between tokens of {STREAMS} streams, p50 and p99, while a prompt of {ARRIVING_LENGTH} tokens arrives"
            f" every {ARRIVAL_SECONDS} s",
            f"{median * 1000:.1f} ms, {slowest * 1000:.1f} ms",
            f"{slowest / median:.2f}",
            f"<= {LATENCY_BOUND}",
        ),
        Row(
            f"resident memory of the worker after {WARM_REQUESTS} and {ALL_REQUESTS} requests",
            f"{early / 1e6:.0f} MB, {late / 1e6:.0f} MB",
            f"{late / early:.3f}",
            f"<= {MEMORY_BOUND}",
        ),
        Row("worker start to first token, examples/hello", f"{start:.1f} s", "", f"<= {START_BOUND} s"),
    ]


def section(rows: list[Row], rounds: int, load: float, vllm_python: str | None) -> str:
    models = "\n".join(
        f"- {name}: {model.description}, vocabulary {model.vocabulary:,}" for name, model in MODELS.items()
    )
    table = "\n".join(f"| {' | '.join(row)} |" for row in rows)
    return f"""## The torch engine

`make bench-engine` compares the torch engine with other engines that run the same models on this machine.

Machine: {machine.description(vllm_python)}; load average {load:.1f} before the start.

The models have random weights:

{models}

Speed is measured with {REQUESTS} concurrent requests, each with a prompt of {PROMPT_LENGTH} tokens and {NEW_TOKENS}
tokens to generate. It is the median of {rounds} rounds, in which the engines take turns and are paused while another
runs. `generate_batch` takes nearly all memory by default, so it runs alone, in {SLOW_ROUNDS} rounds.
The torch engine runs in its worker and streams each request separately, like vLLM; `generate` gets all prompts as one
static batch. The ratio is the torch engine's speed over the other engine's. The first rows are for the small model;
their ratio is the second number over the first.

| measurement | result | ratio | required |
|---|---|---|---|
{table}
"""


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--rounds", type=int, default=9)
    arguments.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS))
    arguments.add_argument("--vllm-python", default=sys.executable if find_spec("vllm") else None)
    arguments.add_argument("--write", action="store_true", help="to docs/explanation/benchmarks.md")
    options = arguments.parse_args()
    load = machine.load()
    with tempfile.TemporaryDirectory() as folder:
        for name in options.models:
            MODELS[name].save(Path(folder) / name)
        rows = engine_rows(Path(folder) / options.models[0])
        for name in options.models:
            rows += speeds(name, Path(folder) / name, options.rounds, options.vllm_python)
    text = section(rows, options.rounds, load, options.vllm_python)
    print(text)
    if options.write:
        write_section(text)


if __name__ == "__main__":
    main()
