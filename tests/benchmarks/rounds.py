"""A process with one library, for `tests.benchmarks.bench_cpu`: it runs a round for each line of standard input."""

import json
import sys
import time
from collections.abc import Callable

from tests.benchmarks import machine

NEW_TOKENS = 32
MAX_STREAMS, MAX_LENGTH = 16, 512

Run = Callable[[list[list[int]]], None]  # generates greedily for all prompts, given as tokens, at once


def serve(load: Callable[[], Run]) -> None:
    """Print how long it takes to load, and then, for each line with streams and prompt tokens, how fast they ended."""
    begun = time.perf_counter()
    run, number = load(), 0
    print(json.dumps({"seconds": time.perf_counter() - begun}), flush=True)
    for line in sys.stdin:
        streams, length = map(int, line.split())
        prompts = [_prompt(number + place, length) for place in range(1, streams + 1)]
        number += streams
        begun = time.perf_counter()
        run(prompts)
        rate = streams * NEW_TOKENS / (time.perf_counter() - begun)
        print(json.dumps({"rate": rate, "memory": machine.own_memory()}), flush=True)


def _prompt(number: int, length: int) -> list[int]:
    return [1 + (number * 7919 + place * 104_729) % 2000 for place in range(length)]
