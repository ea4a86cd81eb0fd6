"""Steps that are not read at once."""

import asyncio
from unittest.mock import Mock

import pytest

from lmi_core.errors import GenerationFailed
from lmi_core.generation.coalescing import OutputCoalescing
from lmi_core.generation.output import GenerationStep, Token
from lmi_plugins.torch_engine.client.engine_worker import StepQueue


def token(token_id: int) -> Token:
    return Token(token_id, str(token_id))


async def test_steps_of_a_sequence_are_added_up() -> None:
    complete, read = Mock(), Mock()
    steps = StepQueue(2, OutputCoalescing(0), complete, read)
    steps.put(GenerationStep([token(1)], prefill=[token(0)], generation_logits=b"a"))
    steps.put(GenerationStep([token(5)], sequence_index=1))
    steps.put(GenerationStep([token(2)], generation_logits=b"b"))
    steps.put(GenerationStep([token(3)], "length", generation_logits=b"c"))
    complete.assert_not_called()
    steps.put(GenerationStep([], "eos_token", 1))
    complete.assert_called_once_with()
    read.assert_not_called()
    assert await anext(steps) == GenerationStep(
        [token(1), token(2), token(3)], "length", prefill=[token(0)], generation_logits=b"abc"
    )
    assert await anext(steps) == GenerationStep([token(5)], "eos_token", 1)
    read.assert_called_once_with()
    assert [step async for step in steps] == []


async def test_what_was_read_is_over() -> None:
    steps = StepQueue(1, OutputCoalescing(0), Mock())
    reading = asyncio.ensure_future(anext(steps))
    await asyncio.sleep(0)
    steps.put(GenerationStep([token(1)]))
    assert await reading == GenerationStep([token(1)])
    steps.put(GenerationStep([token(2)]))
    assert await anext(steps) == GenerationStep([token(2)])


async def test_an_error_comes_after_the_steps_before_it() -> None:
    complete = Mock()
    steps = StepQueue(1, OutputCoalescing(0), complete)
    steps.put(GenerationStep([token(1)]))
    complete.assert_not_called()
    steps.fail(GenerationFailed("lost"))
    complete.assert_called_once_with()
    assert await anext(steps) == GenerationStep([token(1)])
    for _ in range(2):
        with pytest.raises(GenerationFailed, match="lost"):
            await anext(steps)
