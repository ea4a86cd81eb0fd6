"""The benchmark of the server on vLLM's engine against vLLM's own server and the bare engine: `make bench-server`."""

import argparse
import itertools
import statistics
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import IO, NamedTuple

from tests.benchmarks import machine
from tests.benchmarks.page import write_section
from tests.benchmarks.pausing import pause, resumed
from tests.benchmarks.server_contenders import (
    ENGINE_ARGUMENTS,
    NEW_TOKENS,
    PROMPT_IDS,
    WAVES,
    LoadClient,
    Measure,
    Request,
    VllmClient,
    bare_engine,
    lmi_server,
    load_client,
    rust_server,
    save_model_directory,
    vllm_client,
    vllm_server,
)

STREAMS = (1, 16, 64)
VLLM_CLIENT_STREAMS = (16, 64)
WARM_UPS = 3
PROMPT = "What is Deep Learning?"
COMPLETION = Request(
    "/v1/completions",
    {
        "model": "hello",
        "prompt": PROMPT,
        "max_tokens": NEW_TOKENS,
        "temperature": 0,
        "ignore_eos": True,
        "stream": True,
    },
    '"text":',
    '"finish_reason":"length"',
)
WITH_LOG_PROBS = COMPLETION._replace(body=COMPLETION.body | {"logprobs": 1})
INVOCATION = Request(
    "/invocations",
    {
        "inputs": PROMPT,
        "parameters": {"max_new_tokens": NEW_TOKENS, "ignore_eos_token": True},
        "stream": True,
    },
    '"token":',
    '"generated_text":',
)
ALONE, VLLM, OURS = "engine alone", "vLLM's server, /v1/completions", "lmi serve, /v1/completions"
RUST = "vLLM's front end in Rust, /v1/completions"
VLLM_BY_VLLM, OURS_BY_VLLM, RUST_BY_VLLM = (f"{name}, by vLLM's client" for name in (VLLM, OURS, RUST))
VLLM_LOG_PROBS, OURS_LOG_PROBS = "vLLM's server, /v1/completions, logprobs=1", "lmi serve, /invocations, jsonlines"


class Clients(NamedTuple):
    """The clients that measure a server."""

    own: LoadClient
    vllm: VllmClient


class Contender(NamedTuple):
    """A server as one of the clients measures it, or the engine alone."""

    name: str
    process_id: int
    measure: Callable[[int], Measure]  # takes the number of streams
    streams: tuple[int, ...] = STREAMS


class Summary(NamedTuple):
    """The summary of a contender's rounds at one number of streams."""

    cpu_per_token: float  # mean, microseconds
    tokens_per_second: float  # the median
    first_token_p50: float  # seconds
    first_token_p99: float
    longest_gap: float | None  # median, seconds; servers only


def measure_all(directory: Path, clients: Clients, rounds: int, log: IO[bytes]) -> dict[tuple[str, int], Summary]:
    """Measure every contender in turns, so that other load on the machine affects all alike."""
    measured: dict[tuple[str, int], list[Measure]] = {}
    with ExitStack() as stack:
        contenders = list(_contenders(directory, clients, log, stack))
        for number in range(WARM_UPS + rounds):
            for streams, contender in itertools.product(STREAMS, contenders):
                if streams not in contender.streams:
                    continue
                with resumed(contender.process_id):
                    measure = contender.measure(streams)
                if number >= WARM_UPS:
                    measured.setdefault((contender.name, streams), []).append(measure)
    return {key: summary(measures) for key, measures in measured.items()}


def _contenders(directory: Path, clients: Clients, log: IO[bytes], stack: ExitStack) -> Iterator[Contender]:
    """Start every contender, and pause it until its turn."""
    ours = stack.enter_context(lmi_server(directory, log))
    yield Contender(OURS, ours.process.pid, partial(clients.own.measure, ours, COMPLETION))
    yield Contender(OURS_LOG_PROBS, ours.process.pid, partial(clients.own.measure, ours, INVOCATION))
    yield Contender(OURS_BY_VLLM, ours.process.pid, partial(clients.vllm.measure, ours), VLLM_CLIENT_STREAMS)
    pause(ours.process.pid)
    vllm = stack.enter_context(vllm_server(directory, log))
    yield Contender(VLLM, vllm.process.pid, partial(clients.own.measure, vllm, COMPLETION))
    yield Contender(VLLM_LOG_PROBS, vllm.process.pid, partial(clients.own.measure, vllm, WITH_LOG_PROBS))
    yield Contender(VLLM_BY_VLLM, vllm.process.pid, partial(clients.vllm.measure, vllm), VLLM_CLIENT_STREAMS)
    pause(vllm.process.pid)
    rust = stack.enter_context(rust_server(directory, log))
    yield Contender(RUST, rust.process.pid, partial(clients.own.measure, rust, COMPLETION))
    yield Contender(RUST_BY_VLLM, rust.process.pid, partial(clients.vllm.measure, rust), VLLM_CLIENT_STREAMS)
    pause(rust.process.pid)
    alone = stack.enter_context(bare_engine(directory, log))
    alone.measure(1)  # once the model is loaded
    yield Contender(ALONE, alone.process.pid, alone.measure)
    pause(alone.process.pid)


def summary(measures: list[Measure]) -> Summary:
    waits = sorted(wait for each in measures for wait in each.first_token_seconds)
    gaps = [gap for each in measures for gap in each.longest_gaps]
    return Summary(
        sum(each.cpu for each in measures) / sum(each.tokens for each in measures) * 1e6,
        statistics.median(each.tokens / each.seconds for each in measures),
        waits[len(waits) // 2],
        waits[len(waits) * 99 // 100],
        statistics.median(gaps) if gaps else None,
    )


def bounds(found: dict[tuple[str, int], Summary]) -> list[tuple[str, float, str]]:
    """Return each requirement of the server as its description, the measured value and the required one."""
    ours_log_probs, vllm_log_probs = found[OURS_LOG_PROBS, 64], found[VLLM_LOG_PROBS, 64]
    return [
        *_bounds_beside_vllm("our client", found[OURS, 64], found[VLLM, 64]),
        *_bounds_beside_vllm("vLLM's client", found[OURS_BY_VLLM, 64], found[VLLM_BY_VLLM, 64]),
        *(
            (
                f"CPU per token, /v1/completions over vLLM's front end in Rust, by {client}",
                found[ours, 64].cpu_per_token / found[rust, 64].cpu_per_token,
                "<= 1.3",
            )
            for client, ours, rust in (("our client", OURS, RUST), ("vLLM's client", OURS_BY_VLLM, RUST_BY_VLLM))
        ),
        (
            "CPU per token, /invocations over vLLM's with log probs",
            ours_log_probs.cpu_per_token / vllm_log_probs.cpu_per_token,
            "<= 0.6",
        ),
        (
            "CPU per token at 64 streams over that at 16",
            found[OURS, 64].cpu_per_token / found[OURS, 16].cpu_per_token,
            "<= 1.0",
        ),
    ]


def _bounds_beside_vllm(client: str, ours: Summary, vllm: Summary) -> list[tuple[str, float, str]]:
    what = f"/v1/completions over vLLM's own, by {client}"
    return [
        (f"CPU per token, {what}", ours.cpu_per_token / vllm.cpu_per_token, "<= 0.5"),
        (f"tokens/s, {what}", ours.tokens_per_second / vllm.tokens_per_second, ">= 1.0"),
        (f"time to first token p50, {what}", ours.first_token_p50 / vllm.first_token_p50, "<= 0.8"),
    ]


def section(found: dict[tuple[str, int], Summary], rounds: int, load: float) -> str:
    rows = "\n".join(
        f"| {name} | {streams} | {each.cpu_per_token:.0f} us | {each.tokens_per_second:.0f} |"
        f" {each.first_token_p50 * 1000:.0f} ms | {each.first_token_p99 * 1000:.0f} ms |"
        f" {'' if each.longest_gap is None else f'{each.longest_gap * 1000:.0f} ms'} |"
        for (name, streams), each in sorted(found.items(), key=lambda item: item[0][1])
    )
    ratios = "\n".join(f"| {what} | {ratio:.3f} | {bound} |" for what, ratio, bound in bounds(found))
    share = found[ALONE, 64].cpu_per_token / found[OURS, 64].cpu_per_token
    arguments = ", ".join(f"{name}={value}" for name, value in ENGINE_ARGUMENTS.items())
    return f"""## The server

`make bench-server` measures the overhead of a server over vLLM's engine, with `examples/hello`, prompts of
{len(PROMPT_IDS)} tokens and {NEW_TOKENS} generated tokens per stream. Our client runs in its own process and only
counts tokens; it sends as many requests at once as there are streams, {WAVES} times. vLLM's client, `vllm bench
serve`, sends as many random prompts, a new one whenever one ends, and takes more of the CPUs that it shares with the
servers. CPU is the CPU time of the server's process, or of vLLM's front end in Rust, without the engine's. The
contenders take turns in {rounds} rounds and are paused while another runs, so other load on the machine affects all
alike. CPU is the mean of the rounds; tokens/s and the longest gap between a stream's reads are medians. As by
default, `lmi serve` sends tokens [together under load](../reference/api.md#streams-under-load). No server logs
requests. All engines have the same arguments: {arguments}.

Machine: {machine.description()}; load average {load:.1f} before the start.

| contender | streams | CPU per token | tokens/s | first token p50 | p99 | longest gap |
|---|---|---|---|---|---|---|
{rows}

| at 64 streams | ratio | required |
|---|---|---|
{ratios}

vLLM's front end in Rust talks to the engine's process itself. A server in Python pays for vLLM's client of the engine,
as `engine alone` does, which decodes the engine's messages, makes text of the tokens and wakes a task for each stream:
{share:.0%} of our CPU per token at 64 streams. To avoid it, a server would have to speak vLLM's internal protocol,
which changes from release to release.
"""


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--rounds", type=int, default=40)
    arguments.add_argument("--write", action="store_true", help="to docs/explanation/benchmarks.md")
    options = arguments.parse_args()
    load = machine.load()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        save_model_directory(folder / "hello")
        log = stack.enter_context(open(folder / "log", "wb"))
        own = stack.enter_context(load_client(log))
        clients = Clients(own, stack.enter_context(vllm_client(folder / "hello", log)))
        found = measure_all(folder / "hello", clients, options.rounds, log)
    text = section(found, options.rounds, load)
    print(text)
    if options.write:
        write_section(text)


if __name__ == "__main__":
    main()
