"""The report of a soak, as a section of docs/explanation/reliability.md."""

import statistics
from collections.abc import Iterator, Sequence
from pathlib import Path

from tests.benchmarks import machine
from tests.benchmarks.page import write_section
from tests.soak.soak import Finding, Probe

PAGE = Path(__file__).parents[2] / "docs" / "explanation" / "reliability.md"
PROBE_BOUND = 50.0  # milliseconds, without the time in which the machine had no processor for the server
NEIGHBOUR_TIMES = 2.0  # what the 99th percentile of the neighbour may be of its value in quiet
HEADINGS = {"torch": "## The latest soak", "vllm": "## The latest soak on vLLM"}
ALLOWED = {"/ping": (200, 503), "/readiness": (200, 503), "/liveness": (200,)}


def wrong_of_probes(found: Finding, bound: float) -> Iterator[str]:
    """Yield what is wrong with the probes: an unexpected status, or more than 1% above the bound."""
    for _, _, status, path in found.probes:
        if status not in ALLOWED[path]:
            yield f"{path} answered {status}"
    late = share(own for _, own, _, _ in found.probes)
    if late > bound:
        yield f"1% of the probes took more than {late:.0f} ms of the server's own time, which is over {bound:g} ms"


def wrong_of_neighbour(found: Finding) -> Iterator[str]:
    """Yield what is wrong with the neighbour: an unexpected status, or a p99 above twice that of the quiet time."""
    for _, _, status, path in found.quiet + found.beside:
        if status not in (200, 503):  # its engine is being restarted
            yield f"the neighbour's {path} was answered with {status}"
    quiet, beside = (share(own for own, _ in _answer_times(each)) for each in (found.quiet, found.beside))
    if beside > NEIGHBOUR_TIMES * quiet:
        yield f"99% of the neighbour's answers took {beside:.0f} ms of the server's own time, and {quiet:.0f} in quiet"


def _answer_times(probes: Sequence[Probe]) -> list[tuple[float, float]]:
    """Return the server's own milliseconds, and all of them, but for those while the engine was restarted."""
    return [(own, taken) for taken, own, status, _ in probes if status == 200]


def share(values: Iterator[float], part: float = 0.99) -> float:
    """Return the value that this part of the values does not exceed; 0 without any."""
    ordered = sorted(values)
    return ordered[min(int(part * len(ordered)), len(ordered) - 1)] if ordered else 0.0


def report(found: Finding) -> str:
    """Return the report in Markdown."""
    plan, tally = found.plan, found.tally
    answers = "\n".join(f"| {name} | {count} |" for name, count in sorted(tally.answered.items()))
    harm = "\n".join(f"| {name} | {count} |" for name, count in sorted(tally.hostile.items()))
    left = "\n".join(f"| {name} | {count} |" for name, count in sorted(tally.left.items()))
    return f"""{HEADINGS[plan.backend]}

{_duration(plan.seconds)} on the {plan.backend} backend, with a model on the torch backend that comes and goes;
{plan.clients} clients, {found.questions} different questions, seed {plan.seed}.
Machine: {machine.description()}; load average {machine.load():.1f} at the
end, because of other work.

| | |
|---|---|
| answers that were compared | {sum(tally.answered.values())} |
| wrong, lost or doubled ones | {len(tally.wrong)} |
| other faults | {len(found.wrong) - len(tally.wrong)} |
| requests that were left unfinished | {sum(tally.left.values())} |
| requests refused with 503 and retried | {tally.refused} |
| engine processes killed (SIGKILL); seconds until the replacement accepted requests | {_seconds(found.killed)} |
| engine processes stopped (SIGSTOP); the same, including the time until detection | {_seconds(found.stopped)} |
| memory of the server at most, while it is asked, MB | {max([each.memory for each in found.samples], default=0):.0f} |
| probes | {len(found.probes)} |
| milliseconds of a probe: median, 99%, longest | {_spread([taken for taken, *_ in found.probes])} |
| the same without waits for a CPU | {_spread([own for _, own, *_ in found.probes])} |
{_neighbour("in quiet", found.quiet)}
{_neighbour("beside all others", found.beside)}

| of the server, at rest | after the warm-up | at the end |
|---|---|---|
{_footprints(found)}

| answers | compared |
|---|---|
{answers}

| requests that were left | |
|---|---|
{left}

| hostile clients and changes, and how they were met | |
|---|---|
{harm}
"""


def write(text: str) -> None:
    write_section(text, PAGE)


def _duration(seconds: float) -> str:
    return f"{seconds / 60:.0f} minutes" if seconds >= 60 else f"{seconds:.0f} seconds"


def _seconds(values: Sequence[float]) -> str:
    if not values:
        return "0"
    return f"{len(values)}; median {statistics.median(values):.1f}, longest {max(values):.1f}"


def _spread(values: Sequence[float]) -> str:
    if not values:
        return "-"
    return f"{statistics.median(values):.1f}, {share(iter(values)):.1f}, {max(values):.1f}"


def _neighbour(when: str, probes: Sequence[Probe]) -> str:
    own, taken = zip(*_answer_times(probes) or [(0.0, 0.0)], strict=True)
    name = f"milliseconds of the neighbour's {len(own)} requests {when}: median, 99%, longest"
    return f"| {name} | {_spread(taken)} |\n| the same without waits for a CPU | {_spread(own)} |"


def _footprints(found: Finding) -> str:
    rows = {
        "memory of the server, MB": "memory",
        "of this, in use by what the C library has given out": "allocated",
        "blocks that Python's allocator has given out": "blocks",
        "memory of the largest process that tokenizes long texts or compiles guides, MB": "helper_memory",
        "memory of the engine's process, MB": "engine_memory",
        "descriptors": "descriptors",
        "descriptors of the engine's process": "engine_descriptors",
        "threads": "threads",
        "threads of the engine's process": "engine_threads",
        "child processes": "processes",
        "requests in flight": "in_flight",
    }
    lines = [
        f"| {name} | {getattr(found.before, key):.0f} | {getattr(found.after, key):.0f} |" for name, key in rows.items()
    ]
    tasks = f"| tasks | {sum(found.before.tasks.values())} | {sum(found.after.tasks.values())} |"
    return "\n".join([*lines, tasks])
