"""A second model that is registered, asked, and removed, again and again."""

import asyncio
from dataclasses import replace
from pathlib import Path

from tests.soak.adapters import change
from tests.soak.answers import Wrong
from tests.soak.questions import Question
from tests.soak.target import Target

VISITOR = "visitor"
QUESTION = Question(
    "another model", "/invocations", {"inputs": "What is your name?", "parameters": {"max_new_tokens": 20}}
)
TO_VISITOR = replace(QUESTION, headers={"X-Amzn-SageMaker-Target-Model": VISITOR})


async def come_and_go(target: Target, source: Path, over: asyncio.Event) -> None:
    """Register the model, ask it, which answers as the same model always does, and remove it, until it is over."""
    while not over.is_set():
        try:
            await change(target, "POST", f"/models?model_name={VISITOR}&url={source}", None)
            for _ in range(3):
                target.note(QUESTION, await target.ask(TO_VISITOR), "a model that comes and goes")
            await change(target, "DELETE", f"/models/{VISITOR}", None)
            if (answer := await target.ask(TO_VISITOR)).status != 404:
                raise Wrong(f"a model that was removed: {answer.status} {answer.body!r}")
        except Wrong as wrong:
            target.tally.wrong.append(str(wrong))
        await asyncio.sleep(0.5)
