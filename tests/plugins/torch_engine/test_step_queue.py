"""What becomes of steps that nobody reads at once."""

import asyncio

import pytest

from lmi_core.errors import GenerationFailed
from lmi_core.generation import GenerationStep, Token
from lmi_plugins.torch_engine.step_queue import StepQueue


def token(token_id: int) -> Token:
    return Token(token_id, str(token_id))


async def test_steps_of_a_sequence_are_added_up() -> None:
    steps = StepQueue(2)
    steps.put(GenerationStep([token(1)], prefill=[token(0)], generation_logits=b"a"))
    steps.put(GenerationStep([token(5)], sequence_index=1))
    steps.put(GenerationStep([token(2)], generation_logits=b"b"))
    steps.put(GenerationStep([token(3)], "length", generation_logits=b"c"))
    assert not steps.complete
    steps.put(GenerationStep([], "eos_token", 1))
    assert steps.complete
    assert not steps.read
    assert await steps.get() == GenerationStep(
        [token(1), token(2), token(3)], "length", prefill=[token(0)], generation_logits=b"abc"
    )
    assert await steps.get() == GenerationStep([token(5)], "eos_token", 1)
    assert steps.read


async def test_what_was_read_is_over() -> None:
    steps = StepQueue(1)
    reading = asyncio.create_task(steps.get())
    await asyncio.sleep(0)
    steps.put(GenerationStep([token(1)]))
    assert await reading == GenerationStep([token(1)])
    steps.put(GenerationStep([token(2)]))
    assert await steps.get() == GenerationStep([token(2)])


async def test_an_error_comes_after_the_steps_before_it() -> None:
    steps = StepQueue(1)
    steps.put(GenerationStep([token(1)]))
    steps.fail(GenerationFailed("lost"))
    assert steps.complete
    assert await steps.get() == GenerationStep([token(1)])
    for _ in range(2):
        with pytest.raises(GenerationFailed, match="lost"):
            await steps.get()
