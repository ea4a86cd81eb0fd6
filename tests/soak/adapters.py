"""An adapter that is loaded, used by requests, and removed, repeatedly."""

import asyncio
from pathlib import Path
from typing import Any

from tests.soak.answers import Wrong
from tests.soak.questions import PASSING, adapter_question
from tests.soak.target import BUSY, RETRY_SECONDS, Target

ROUTE = "/models/hello/adapters"
QUESTION = adapter_question(PASSING)
GONE = 424  # of an unknown adapter, in LMI's dialect


async def load(target: Target, source: Path) -> None:
    await change(target, "POST", ROUTE, {"name": PASSING, "src": str(source)})


async def remove(target: Target) -> None:
    await change(target, "DELETE", f"{ROUTE}/{PASSING}", None)


async def change(target: Target, method: str, route: str, body: Any) -> None:
    """Change the adapters, which must work as soon as an engine is there: a change that failed has left no trace."""
    while True:
        async with target.session.request(method, route, json=body) as response:
            if response.status == 200:
                return
            if response.status not in BUSY:
                raise Wrong(f"{method} {route}: {response.status} {await response.text()}")
        await asyncio.sleep(RETRY_SECONDS)


async def learn(target: Target, source: Path) -> None:
    """Remember the adapter's right answer."""
    await load(target, source)
    await target.learn([QUESTION])
    await remove(target)


async def come_and_go(target: Target, source: Path, over: asyncio.Event) -> None:
    """Load the adapter, ask with it, and remove it, until it is over; note what is wrong."""
    while not over.is_set():
        try:
            await load(target, source)
            for _ in range(3):
                target.check(QUESTION, await target.ask(QUESTION))
                target.tally.answered["adapters that come and go"] += 1
            await remove(target)
            if (answer := await target.ask(QUESTION)).status != GONE:
                raise Wrong(f"an adapter that was removed: {answer.status} {answer.body!r}")
        except Wrong as wrong:
            target.tally.wrong.append(str(wrong))
        await asyncio.sleep(0.2)
