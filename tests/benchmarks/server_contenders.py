"""Contenders of the server benchmark: servers, an engine and clients in processes of their own."""

import ctypes
import json
import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from functools import cached_property
from importlib import metadata
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import IO, Any, NamedTuple, Self

import psutil

from tests.benchmarks.load_client import Load
from tests.benchmarks.pausing import resume

ROOT = Path(__file__).parents[2]
HELLO = ROOT / "examples" / "hello"
VLLM_RS = ROOT / ".vllm-rs" / "vllm" / "vllm-rs"
NONE = MappingProxyType[str, str]({})
NEW_TOKENS = 64
WAVES = 4  # of requests; vLLM's client sends a new one as soon as one ends, ours when all have ended
PROMPT_IDS = [298, 269, 637, 653, 845, 35]
ENGINE_ARGUMENTS = {  # engine arguments common to all contenders
    "dtype": "float32",
    "enforce_eager": "true",
    "max_model_len": "256",
    "max_num_seqs": "64",
    "disable_log_stats": "true",
}
ENVIRONMENT = {"VLLM_CPU_KVCACHE_SPACE": "1", "HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1"}
START_SECONDS = 180
C_LIBRARY = ctypes.CDLL(None)


class Measure(NamedTuple):
    """The measurements of one round."""

    tokens: int
    seconds: float
    cpu: float  # CPU seconds of the server's process alone
    first_token_seconds: list[float]
    longest_gaps: list[float]  # seconds between a client's reads, for each stream; empty for a bare engine


class Request(NamedTuple):
    """The request of each stream, and the texts that count its tokens, as in Load."""

    path: str
    body: dict[str, Any]
    mark: str
    end: str


class Child:
    """A process that runs until the end of the benchmark."""

    def __init__(
        self, command: list[str], log: IO[bytes], *, answers: bool = False, environment: Mapping[str, str] = NONE
    ) -> None:
        """Start a command, which with `answers` answers each input line by a line that begins like a JSON object."""
        self.process = subprocess.Popen(
            command,
            cwd=ROOT,
            env={**os.environ, **ENVIRONMENT, **environment},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE if answers else log,
            stderr=log,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        resume(self.process.pid)
        self.process.terminate()
        self.process.communicate()

    def ask(self, line: str) -> dict[str, Any]:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(line.encode() + b"\n")
        self.process.stdin.flush()
        for answer in self.process.stdout:
            if answer.startswith(b"{"):
                return dict(json.loads(answer))
        raise RuntimeError(f"{self.process.args!r} ended")


class Server(Child):
    def __init__(self, command: list[str], log: IO[bytes], environment: Mapping[str, str] = NONE) -> None:
        self.port = free_port()
        super().__init__([*command, "--port", str(self.port)], log, environment=environment)

    def __enter__(self) -> Self:
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline and self.process.poll() is None:
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{self.port}/health", timeout=5).close()
                return self
            except (urllib.error.URLError, ConnectionError, TimeoutError):
                time.sleep(0.5)
        self.process.terminate()
        raise RuntimeError(f"{self.process.args!r} does not start")

    @property
    def front_id(self) -> int:
        """The process that reads requests and writes tokens."""
        return self.process.pid

    def cpu_seconds(self) -> float:
        clock = ctypes.c_int()  # the kernel's own times of a process are in ticks of 10 ms, too coarse for a wave
        if error := C_LIBRARY.clock_getcpuclockid(self.front_id, ctypes.byref(clock)):
            raise OSError(error, os.strerror(error))
        return time.clock_gettime(clock.value)


class RustServer(Server):
    @cached_property
    def front_id(self) -> int:
        children = psutil.Process(self.process.pid).children(recursive=True)
        return next(child.pid for child in children if str(VLLM_RS) in child.cmdline())


class LoadClient(Child):
    def measure(self, server: Server, request: Request, streams: int) -> Measure:
        load = Load(server.port, request.path, json.dumps(request.body), streams, request.mark, request.end)
        before = server.cpu_seconds()
        waves = [self.ask(json.dumps(asdict(load))) for _ in range(WAVES)]
        cpu = server.cpu_seconds() - before
        first_tokens = [seconds for wave in waves for seconds in wave["first_token_seconds"]]
        gaps = [gap for wave in waves for gap in wave["longest_gaps"]]
        return Measure(WAVES * streams * NEW_TOKENS, sum(wave["seconds"] for wave in waves), cpu, first_tokens, gaps)


class VllmClient(Child):
    """vLLM's own benchmark client, `vllm bench serve`, with its random prompts."""

    def __init__(self, command: list[str], log: IO[bytes], tokenizer: Path) -> None:
        super().__init__(command, log, answers=True)
        self._tokenizer = tokenizer
        self._seeds: dict[tuple[int, int], int] = {}  # by port and streams: every server gets the same prompts in turn

    def measure(self, server: Server, streams: int) -> Measure:
        seed = self._seeds[server.port, streams] = self._seeds.get((server.port, streams), 0) + 1
        num_prompts = WAVES * streams
        options = {
            "base-url": f"http://127.0.0.1:{server.port}",
            "endpoint": "/v1/completions",
            "model": "hello",
            "tokenizer": self._tokenizer,
            "dataset-name": "random",
            "random-input-len": len(PROMPT_IDS),
            "random-output-len": NEW_TOKENS,
            "num-prompts": num_prompts,
            "max-concurrency": streams,
            "temperature": 0,
            "seed": seed,
        }
        words = [f"--{name}={value}" for name, value in options.items()]
        before = server.cpu_seconds()
        result = self.ask(json.dumps(words))
        cpu = server.cpu_seconds() - before
        if result["tokens"] != num_prompts * NEW_TOKENS:
            raise RuntimeError(f"{result['tokens']} tokens came of {num_prompts * NEW_TOKENS}: {result['errors']}")
        return Measure(result["tokens"], result["seconds"], cpu, result["first_token_seconds"], result["longest_gaps"])


class BareEngine(Child):
    def measure(self, streams: int) -> Measure:
        return Measure(streams * NEW_TOKENS, **self.ask(str(streams)))


def load_client(log: IO[bytes]) -> LoadClient:
    return LoadClient([sys.executable, "-m", "tests.benchmarks.load_client"], log, answers=True)


def vllm_client(directory: Path, log: IO[bytes]) -> VllmClient:
    return VllmClient([sys.executable, "-m", "tests.benchmarks.vllm_client"], log, directory)


def bare_engine(directory: Path, log: IO[bytes]) -> BareEngine:
    arguments = json.dumps([ENGINE_ARGUMENTS | {"model": str(directory)}, PROMPT_IDS, NEW_TOKENS])
    return BareEngine([sys.executable, "-m", "tests.benchmarks.bare_engine", arguments], log, answers=True)


def lmi_server(directory: Path, log: IO[bytes]) -> Server:
    """Start `lmi serve` on a model directory, with a log as quiet as vLLM's."""
    command = [sys.executable, "-m", "lmi_handlers.cli.entry", "serve", str(directory), "--log-level", "warning"]
    return Server(command, log)


def vllm_server(directory: Path, log: IO[bytes]) -> Server:
    """Start vLLM's own server without an access log."""
    module = "vllm.entrypoints.openai.api_server"  # the module behind `vllm serve`, a command that CPU builds lack
    command = [sys.executable, "-m", module, "--model", str(directory), *_vllm_options()]
    return Server([*command, "--disable-uvicorn-access-log"], log)


def rust_server(directory: Path, log: IO[bytes]) -> RustServer:
    """Start vLLM's server with its front end in Rust, which is in vLLM's builds for GPUs only."""
    version = f"{metadata.version('vllm-cpu')}+cpu"
    visible = directory.with_name("visible")  # to vLLM's command, which looks for a distribution of this name
    information = visible / f"vllm-{version}.dist-info"
    information.mkdir(parents=True)
    (information / "METADATA").write_text(f"Metadata-Version: 2.1\nName: vllm\nVersion: {version}\n")
    command = [sys.executable, "-m", "vllm.entrypoints.cli.main", "serve", str(directory), *_vllm_options()]
    environment = {
        "PYTHONPATH": str(visible),
        "VLLM_USE_RUST_FRONTEND": "1",
        "VLLM_RUST_FRONTEND_PATH": str(VLLM_RS),
        "RUST_LOG": "warn",
    }
    return RustServer(command, log, environment)


def _vllm_options() -> Iterator[str]:
    yield from ("--served-model-name", "hello")
    for name, value in ENGINE_ARGUMENTS.items():
        yield "--" + name.replace("_", "-")
        if value != "true":
            yield value


def save_model_directory(directory: Path) -> None:
    """Save a model directory that serves `examples/hello` on vLLM with the contenders' common arguments."""
    shutil.copytree(HELLO, directory)
    options = {"rolling_batch": "vllm"} | ENGINE_ARGUMENTS
    lines = [f"option.{name}={value}" for name, value in options.items()]
    (directory / "serving.properties").write_text("\n".join(lines) + "\n")


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])
