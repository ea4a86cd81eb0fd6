"""API keys with limits: some that are well-behaved, a greedy one, and one that is removed and added again."""

import asyncio
import os
import time
from pathlib import Path

from tests.soak.answers import Wrong
from tests.soak.probes import lost_seconds, waits
from tests.soak.questions import MODEL, Question
from tests.soak.target import BUSY, OF_KEYS, Target

STEADY_KEYS = ("sk-soak-first", "sk-soak-second", "sk-soak-third")
NEIGHBOUR, HOSTILE, GREEDY, PASSING_KEY = (f"sk-soak-{name}" for name in ("neighbour", "hostile", "greedy", "passing"))
WIDE = "max_concurrent_requests=1000 requests_per_minute=1000000"
LIMITS = dict.fromkeys((*STEADY_KEYS, NEIGHBOUR, HOSTILE, PASSING_KEY), WIDE) | {GREEDY: "max_concurrent_requests=3"}
GREED = 12  # requests at once
GONE_SECONDS = 3.0  # in which a change of the keys must be seen, beside the time in which the machine stood still
LOOK_SECONDS = 0.05
BEYOND = "requests beyond a key's limit, refused"
QUESTION = Question("a few tokens", "/invocations", {"inputs": "Hi", "parameters": {"max_new_tokens": 4}})


def authorization(key: str) -> dict[str, str]:
    return {"authorization": f"Bearer {key}"}


def headers_of(key: str) -> dict[str, str]:
    """Return the headers of a client that names the model, as there may be others."""
    return {**authorization(key), "X-Amzn-SageMaker-Target-Model": MODEL}


def write_keys(file: Path, *, but: str = "") -> None:
    """Replace the file of the keys as a whole."""
    lines = [f"{key.removeprefix('sk-soak-')} {key} {limits}\n" for key, limits in LIMITS.items() if key != but]
    new = file.with_suffix(".new")
    new.write_text("".join(lines))
    os.replace(new, file)


async def be_greedy(target: Target, over: asyncio.Event) -> None:
    """Ask more at once than the key may, which is refused beyond its limit and answered within it."""
    while not over.is_set():
        every = await asyncio.gather(*(target.ask_once(QUESTION, headers_of(GREEDY)) for _ in range(GREED)))
        for answer in every:
            target.tally.hostile[BEYOND] += OF_KEYS in answer.body
            if answer.status not in BUSY:
                target.note(QUESTION, answer, "a greedy key")
        await asyncio.sleep(LOOK_SECONDS)


async def come_and_go(target: Target, server: int, file: Path, over: asyncio.Event) -> None:
    """Remove a key and add it again, which must be seen soon."""
    while not over.is_set():
        for but, wanted in ((PASSING_KEY, 401), ("", 200)):
            write_keys(file, but=but)
            try:
                await _wait_for_status(target, server, wanted)
                answer = await target.ask(QUESTION, headers_of(PASSING_KEY))
                if but and answer.status != wanted:
                    raise Wrong(f"a key that was removed got {answer.status} {answer.body!r}")
            except Wrong as wrong:
                target.tally.wrong.append(str(wrong))
            else:
                if not but:
                    target.note(QUESTION, answer, "a key that comes and goes")
                target.tally.hostile["changes of a key that comes and goes"] += 1


async def _wait_for_status(target: Target, server: int, wanted: int) -> None:
    """Wait until the key that comes and goes gets this status."""
    begun, before, overslept = time.perf_counter(), waits(str(server)), 0.0
    while True:
        async with target.session.get("/v1/models", headers=headers_of(PASSING_KEY)) as response:
            if response.status == wanted:
                return
        stood = overslept + lost_seconds(str(server), before)
        if (taken := time.perf_counter() - begun) - stood > GONE_SECONDS:
            raise Wrong(f"{taken:.1f} s after its change, a key gets {response.status}, not {wanted}")
        slept = time.perf_counter()
        await asyncio.sleep(LOOK_SECONDS)
        overslept += time.perf_counter() - slept - LOOK_SECONDS
