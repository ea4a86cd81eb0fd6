"""The benchmark of several engines of a model: their choice, distance, number and deaths: `make bench-replicas`."""

import argparse
import asyncio
import itertools
import random
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from statistics import median

from lmi_core.workers.isolation import Presence, Work
from lmi_core.workers.routing import BLOCK, Router
from tests.benchmarks import machine
from tests.benchmarks.page import write_section
from tests.benchmarks.replica_servers import KILLED, STREAMS, Pauses, Scaling, overheads, pauses, pauses_on_ray, scaling
from tests.benchmarks.simulated_engine import SEQUENCES, STEP
from tests.core.workers.numbers import Numbers

VOCABULARY = range(50_000)
REQUESTS = 2000  # of each length
LENGTHS = (100, 1000, 8000)
MANY = 1000  # engines
NUMBERS = (8, 100, MANY, 10_000)  # of engines, for the arithmetic
TOKENS_PER_SECOND, TOKENS_PER_ANSWER, PROMPT = 2500, 250, 1000  # of each engine, as assumed
CPU_PER_TOKEN = 40e-6  # seconds of the server, one of the larger figures in its table
SYSTEM_PROMPTS, SYSTEM_TOKENS = 60, 1024
CHATS, TURNS, QUESTION, ANSWER = 400, 8, 100, 200  # the latter in tokens
ENGINES, CACHED_BLOCKS, AT_ONCE = 8, 1500, 128

Choose = Callable[[Sequence[Numbers], Work], Numbers]


async def cost(length: int, count: int = MANY) -> float:
    """Return the CPU seconds of a choice among so many engines."""
    router, engines, source = (
        Router[Numbers](max_sequences=SEQUENCES),
        [Numbers(number, set()) for number in range(count)],
        random.Random(length),
    )
    used = 0.0
    for _ in range(REQUESTS):
        prompt = source.choices(VOCABULARY, k=length)  # now, as a tokenizer's result is in the CPU's cache too
        used -= time.process_time()
        work = Work.generation(prompt, ANSWER, 1, None)
        await router.choose(engines, work).isolation.enter(work)
        used += time.process_time()
        del work  # before the next measurement, because freeing the prompt is not the router's work
    return used / REQUESTS


class Cache:
    """The prefix cache of an engine: the blocks that were used last."""

    def __init__(self) -> None:
        self.found = self.looked_up = 0
        self._blocks: OrderedDict[tuple[int, ...], None] = OrderedDict()

    def take(self, prompt: list[int]) -> None:
        is_found = True
        for end in range(BLOCK, len(prompt) + 1, BLOCK):
            block = tuple(prompt[:end])
            is_found = is_found and block in self._blocks
            self.found += is_found
            self.looked_up += 1
            self._blocks[block] = None
            self._blocks.move_to_end(block)
            if len(self._blocks) > CACHED_BLOCKS:
                self._blocks.popitem(last=False)


async def hits(choose: Choose) -> float:
    """Return the share of a trace's blocks that are in the cache of the chosen engine.

    The trace has chats of several turns, in a random order, each with one of some system prompts.
    """
    source, engines = random.Random(0), [Numbers(number, set()) for number in range(ENGINES)]
    caches, inside = {engine: Cache() for engine in engines}, list[Presence]()
    systems = [source.choices(VOCABULARY, k=SYSTEM_TOKENS) for _ in range(SYSTEM_PROMPTS)]
    chats = [list(source.choice(systems)) for _ in range(CHATS)]
    for chat in source.sample(chats * TURNS, k=CHATS * TURNS):
        chat += source.choices(VOCABULARY, k=QUESTION)
        work = Work.generation(tuple(chat), ANSWER, 1, None)
        engine = choose(engines, work)
        caches[engine].take(chat)
        inside.append(await engine.isolation.enter(work))
        inside[-1].record_start()
        if len(inside) > AT_ONCE:
            inside.pop(0).leave()
        chat += source.choices(VOCABULARY, k=ANSWER)
    return sum(cache.found for cache in caches.values()) / sum(cache.looked_up for cache in caches.values())


async def arithmetic() -> str:
    """Return a row for each number of engines: the CPU time that the servers in front of them need."""
    rows = []
    for count in NUMBERS:
        tokens = count * TOKENS_PER_SECOND
        requests, choice = tokens / TOKENS_PER_ANSWER, await cost(PROMPT, count)
        cores = f"{tokens * CPU_PER_TOKEN:,.1f} | {choice * 1e6:.0f} us | {requests * choice:,.2f}"
        rows.append(f"| {count:,} | {tokens:,} | {requests:,.0f} | {cores} |")
    return "\n".join(rows)


def scaling_rows(found: Sequence[Scaling]) -> str:
    first = found[0].tokens_per_second
    return "\n".join(
        f"| {each.engines} | {each.tokens_per_second:,.0f} | {each.tokens_per_second / first / each.engines:.2f} | "
        f"{each.busy:.0%} |"
        for each in found
    )


def pause_row(where: str, found: Pauses) -> str:
    pauses = " | ".join(
        f"{seconds:.2f} s" for seconds in (median(found.killed), max(found.killed), median(found.quiet))
    )
    return f"| {where} | {len(found.killed)} | {pauses} |"


def measure_servers(rounds: int, kills: int) -> str:
    """Return the section on servers, each measured in processes of its own."""
    load = machine.load()
    scales, (local, remote) = scaling(rounds), overheads(rounds)
    dead = "\n".join([pause_row("this host", pauses(kills)), pause_row("a Ray cluster", pauses_on_ray(kills))])
    added = (remote.first_token - local.first_token) * 1000
    per_token = [each.cpu_per_token * 1e6 for each in (local, remote)]
    return f"""## Several engines behind a server

`make bench-replicas` measures `lmi serve` with [several engines](../how_to/replicas.md). For the first two tables they
are simulated: they compute nothing, and give each of up to {SEQUENCES} sequences a token every {STEP * 1000:.0f} ms, as
a large model on a GPU does. Everything else is real: the HTTP client in a process of its own, the server, the worker
processes, and the actors of Ray.

Machine: {machine.description(None)}; load average {load:.1f} before the start and {machine.load():.1f} at the end.

| engines, each full | tokens per second | per engine, against one | of a core, the server's process |
|---|---|---|---|
{scaling_rows(scales)}

| an engine | first token p50 | CPU of the server per token, {STREAMS} streams |
|---|---|---|
| on this host | {local.first_token * 1000:.1f} ms | {per_token[0]:.0f} us |
| in an actor of Ray on this host | {remote.first_token * 1000:.1f} ms | {per_token[1]:.0f} us |
| difference | {added:+.1f} ms | {per_token[1] / per_token[0]:.2f} times |

The pause is the longest time without a token in {STREAMS} streams of `examples/hello` on the torch backend with
{KILLED} engines, of which one is killed in the middle; without a kill there is a pause, too, where this machine's cores
are shared.

| engines | kills | pause p50 | longest | without a kill, p50 |
|---|---|---|---|---|
{dead}
"""


async def measure() -> str:
    load, turns = machine.load(), itertools.count()
    costs = "\n".join([f"| {length} | {await cost(length) * 1e6:.0f} us |" for length in LENGTHS])
    chosen, in_turn = (
        await hits(Router[Numbers](max_sequences=SEQUENCES).choose),
        await hits(lambda engines, _: engines[next(turns) % len(engines)]),
    )
    return f"""## The choice among a model's engines

`make bench-replicas` measures the router of [several engines](../how_to/replicas.md).

Machine: {machine.description(None)}; load average {load:.1f} before the start.

CPU time to choose among {MANY} engines, by the length of the prompt:

| tokens | time |
|---|---|
{costs}

A trace has {CHATS} chats of {TURNS} turns in random order, with {QUESTION} tokens per question and {ANSWER} per answer;
each chat has one of {SYSTEM_PROMPTS} system prompts of {SYSTEM_TOKENS} tokens. On {ENGINES} engines with a prefix cache
of {CACHED_BLOCKS * BLOCK} tokens each and {AT_ONCE} concurrent requests, {chosen:.0%} of the blocks of {BLOCK} tokens
are in the cache of the chosen engine, and {in_turn:.0%} if engines take turns, which then compute
{(1 - in_turn) / (1 - chosen):.1f} times as many tokens of prompts.

The arithmetic of many engines, if each generates {TOKENS_PER_SECOND:,} tokens per second, prompts have {PROMPT:,}
tokens and answers {TOKENS_PER_ANSWER}, and the server takes {CPU_PER_TOKEN * 1e6:.0f} us of CPU per token, as in the
table of the server. The time of a choice is measured:

| engines | tokens per second | requests per second | cores for tokens | time of a choice | cores for choices |
|---|---|---|---|---|---|
{await arithmetic()}

A server has one event loop, so about ten such engines keep it busy. [Several front
ends](../how_to/replicas.md#several-front-ends) (`--servers`) share the engines of one host; each counts only the tokens
of its own requests. For more GPUs, run a server on each host, with the engines of that host, behind a load balancer
that keeps a client on one host: then only the balancer's work grows with the number of hosts.
"""


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--write", action="store_true", help="to docs/explanation/benchmarks.md")
    arguments.add_argument("--rounds", type=int, default=4)
    arguments.add_argument("--kills", type=int, default=20)
    options = arguments.parse_args()
    for text in (asyncio.run(measure()), measure_servers(options.rounds, options.kills)):
        print(text)
        if options.write:
            write_section(text)


if __name__ == "__main__":
    main()
