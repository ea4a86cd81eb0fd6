"""The benchmark of the libraries that compute the torch engine's steps on CPUs: `make bench-cpu`."""

import argparse
import itertools
import json
import os
import statistics
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from lmi_core.texts.huggingface_tokenizer import HuggingFaceTokenizer
from lmi_plugins.torch_engine.client.early import ENVIRONMENT
from tests.benchmarks import machine
from tests.benchmarks.page import write_section
from tests.benchmarks.pausing import pause, resume, resumed
from tests.benchmarks.random_models import MODELS, RandomModel, save_gguf
from tests.benchmarks.rounds import MAX_LENGTH, MAX_STREAMS, NEW_TOKENS, Run, serve

ROOT = Path(__file__).parents[2]
RUNNERS: dict[str, dict[str, Any]] = {
    "PyTorch": {"cpu_runner": "torch"},
    "OpenVINO": {"cpu_runner": "openvino"},
    "OpenVINO, int8": {"cpu_runner": "openvino", "quantize": "int8"},
    "OpenVINO, int4": {"cpu_runner": "openvino", "quantize": "int4"},
}


@dataclass(frozen=True)
class Other:
    """A library with an environment of its own, which reads GGUF."""

    python: Path
    module: str  # that serves rounds
    weights: str  # their kind


GENAI, LLAMA = (ROOT / name / "bin" / "python" for name in (".venv-genai", ".venv-llama"))
OTHERS = {
    "OpenVINO GenAI": Other(GENAI, "genai_runner", "F16"),
    "OpenVINO GenAI, q8_0": Other(GENAI, "genai_runner", "Q8_0"),
    "llama.cpp": Other(LLAMA, "llama_cpp_runner", "BF16"),
    "llama.cpp, q8_0": Other(LLAMA, "llama_cpp_runner", "Q8_0"),
}
NAMES = [*RUNNERS, *(name for name, other in OTHERS.items() if other.python.exists())]
SIZES = {
    "hidden_size": 896,
    "intermediate_size": 4864,
    "num_hidden_layers": 24,
    "num_attention_heads": 14,
    "num_key_value_heads": 2,
}
BILLION = {
    "hidden_size": 2048,
    "intermediate_size": 5632,
    "num_hidden_layers": 22,
    "num_attention_heads": 32,
    "num_key_value_heads": 4,
}
SIZED = {
    "150M": MODELS["150M"],
    "360M": RandomModel("Llama, 24 layers, hidden 896, 14 heads, 2 KV heads, bf16", torch.bfloat16, 2048, SIZES),
    "1B": RandomModel("Llama, 22 layers, hidden 2048, 32 heads, 4 KV heads, bf16", torch.bfloat16, 32_000, BILLION),
}
CASES = [(streams, length) for streams in (1, MAX_STREAMS) for length in (32, MAX_LENGTH)]
CACHE_BYTES = 250_000_000


class Runner:
    """An engine in a process of its own, which is paused while others run."""

    def __init__(self, name: str, directory: Path) -> None:
        command = [sys.executable, "-m", "tests.benchmarks.bench_cpu", "--serve", name, str(directory)]
        if other := OTHERS.get(name):
            file = save_gguf(directory, other.weights)
            command = [str(other.python), "-m", f"tests.benchmarks.{other.module}", str(file)]
        self._process = subprocess.Popen(
            command,
            cwd=ROOT,
            env={**os.environ, **({} if name in OTHERS else ENVIRONMENT)},
            text=True,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )

    def __enter__(self) -> "Runner":
        self.started = self._read()
        pause(self._process.pid)
        return self

    def __exit__(self, *_: object) -> None:
        resume(self._process.pid)
        self._process.communicate()  # the end of standard input ends the process

    def run(self, streams: int, length: int) -> dict[str, float]:
        assert self._process.stdin is not None
        with resumed(self._process.pid):
            print(streams, length, file=self._process.stdin, flush=True)
            return self._read()

    def _read(self) -> dict[str, float]:
        assert self._process.stdout is not None
        result: dict[str, float] = json.loads(self._process.stdout.readline())
        return result


def load(name: str, directory: str) -> Run:
    """Load the torch engine with one of its runners."""
    from lmi_plugins.torch_engine.engine.engine import Engine
    from lmi_plugins.torch_engine.messages.requests import EngineOptions, EngineRequest, SamplingParameters

    options = EngineOptions(directory, max_batch_size=MAX_STREAMS, kv_cache_memory=CACHE_BYTES, **RUNNERS[name])
    engine = Engine(options, HuggingFaceTokenizer.load(directory))
    numbers = itertools.count()

    def run(prompts: list[list[int]]) -> None:
        for prompt in prompts:
            engine.add(EngineRequest(str(next(numbers)), prompt, SamplingParameters(max_new_tokens=NEW_TOKENS)))
        while engine.has_work:
            engine.step()

    return run


def measure(model: str, directory: Path, rounds: int) -> list[str]:
    """Return the rows of a model's table."""
    rows = []
    with ExitStack() as stack:
        runners = {name: stack.enter_context(Runner(name, directory)) for name in NAMES}
        for streams, length in CASES:
            measured: dict[str, list[dict[str, float]]] = {name: [] for name in NAMES}
            for turn in range(rounds + 1):
                for name, runner in runners.items():
                    result = runner.run(streams, length)
                    if turn:  # the first is to warm up
                        measured[name].append(result)
            rates = {name: [result["rate"] for result in results] for name, results in measured.items()}
            for name in NAMES:
                fastest = max(rates[name])
                rows.append(
                    f"| {model} | {streams} | {length} | {name} | {fastest:.0f} | {statistics.median(rates[name]):.0f} "
                    f"| {fastest / max(rates['PyTorch']):.1f} | {measured[name][-1]['memory'] / 1e6:.0f} MB |"
                )
                print(rows[-1], flush=True)
    return rows


def section(names: list[str], rows: list[str], rounds: int, load: float) -> str:
    models = "\n".join(f"- {name}: {SIZED[name].description}, vocabulary {SIZED[name].vocabulary:,}" for name in names)
    table = "\n".join(rows)
    others = ", ".join(
        machine.module(name, str(python))
        for name, python in (("openvino_genai", GENAI), ("llama_cpp", LLAMA))
        if python.exists()
    )
    return f"""## OpenVINO beside PyTorch

`make bench-cpu` measures the libraries that can compute the torch engine's steps on CPUs
([cpus.md](../how_to/cpus.md)), beside two others with their own batches and greedy samplers: OpenVINO GenAI, from
f16 or q8_0 weights, and llama.cpp. On a CPU without instructions for bf16, OpenVINO and GenAI compute in float32.

Machine: {machine.description(None)}, {machine.package("openvino")}, {others}; load average {load:.1f} before the start.

The models have random weights:

{models}

Each round generates {NEW_TOKENS} tokens for each stream, prompts included in the time. The engines take turns in
{rounds} rounds, and are paused while another runs. Other programs on the machine slow PyTorch down the most, so the
ratio compares the fastest rounds. Memory is the process's without mapped files, with a KV cache of
{CACHE_BYTES / 1e6:.0f} MB.

Of 16 prompts of 512 tokens that arrive at once, GenAI computes all before it continues with their answers. The torch
engine's steps have fewer tokens of prompts, which takes more CPU time, so that the streams that have begun continue.

| model | streams | prompt tokens | library | tokens/s, fastest | median | ratio | memory |
|---|---|---|---|---|---|---|---|
{table}
"""


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--serve", nargs=2, help="a runner, and the directory of a model")
    arguments.add_argument("--rounds", type=int, default=5)
    arguments.add_argument("--models", nargs="+", choices=SIZED, default=list(SIZED))
    arguments.add_argument("--write", action="store_true", help="to docs/explanation/benchmarks.md")
    options = arguments.parse_args()
    if options.serve:
        serve(lambda: load(*options.serve))
        return
    average = machine.load()
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for name in options.models:
            SIZED[name].save(Path(folder) / name)
            rows += measure(name, Path(folder) / name, options.rounds)
    text = section(options.models, rows, options.rounds, average)
    if options.write:
        write_section(text)


if __name__ == "__main__":
    main()
