"""The benchmark of the choice among the engines of a model: `make bench-replicas`."""

import argparse
import asyncio
import itertools
import random
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence

from lmi_core.workers.isolation import Presence, Work
from lmi_core.workers.routing import BLOCK, Router
from tests.benchmarks import machine
from tests.benchmarks.page import write_section
from tests.core.workers.numbers import Numbers

VOCABULARY = range(50_000)
REQUESTS = 500  # of each length
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
        Router[Numbers](),
        [Numbers(number, set()) for number in range(count)],
        random.Random(length),
    )
    prompts = [source.choices(VOCABULARY, k=length) for _ in range(REQUESTS)]
    used = time.process_time()
    for prompt in prompts:
        work = Work.generation(prompt, ANSWER, 1, None)
        await router.choose(engines, work).isolation.enter(work)
    return (time.process_time() - used) / REQUESTS


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
        inside[-1].has_begun()
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


async def measure() -> str:
    load, turns = machine.load(), itertools.count()
    costs = "\n".join([f"| {length} | {await cost(length) * 1e6:.0f} us |" for length in LENGTHS])
    chosen, in_turn = (
        await hits(Router[Numbers]().choose),
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
are in the cache of the chosen engine, and {in_turn:.0%} if engines take turns.

The arithmetic of many engines, if each generates {TOKENS_PER_SECOND:,} tokens per second, prompts have {PROMPT:,}
tokens and answers {TOKENS_PER_ANSWER}, and the server takes {CPU_PER_TOKEN * 1e6:.0f} us of CPU per token, as in the
table of the server. The time of a choice is measured:

| engines | tokens per second | requests per second | cores for tokens | time of a choice | cores for choices |
|---|---|---|---|---|---|
{await arithmetic()}

A server has one event loop, so about ten such engines keep it busy. For more GPUs, run a server on each host, with the
engines of that host, behind a load balancer that keeps a client on one host: then only the balancer's work grows with
the number of hosts. A single server for more engines would need several processes that share them; today a worker
answers one server, and a router counts only the tokens of its own requests.
"""


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--write", action="store_true", help="to docs/explanation/benchmarks.md")
    options = arguments.parse_args()
    text = asyncio.run(measure())
    if options.write:
        write_section(text)
    else:
        print(text)


if __name__ == "__main__":
    main()
