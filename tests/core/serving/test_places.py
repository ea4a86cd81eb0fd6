"""The places of a queue under random operations, beside a reference that counts them."""

from contextlib import ExitStack
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from lmi_core.errors import InvalidParameter, LmiError, Overloaded
from lmi_core.request import GenerationRequest
from lmi_core.serving.places import NUMBERS_OF_SEQUENCES, Places

MAXIMUM = 6
# Of sequences; what is no number is refused later, and takes one place until then.
NUMBERS = st.dictionaries(st.sampled_from(NUMBERS_OF_SEQUENCES), st.sampled_from([-3, 0, 1, 2, 3, 8, "x", None, 1.5]))


def sequences(parameters: dict[str, Any]) -> int:
    return max([1, *(number for number in parameters.values() if isinstance(number, int))])


class Queue(RuleBasedStateMachine):
    """Places, and the calls that have some: each with what it holds, and how many that are."""

    def __init__(self) -> None:
        super().__init__()
        self.places = Places("model", MAXIMUM)
        self.calls: list[ExitStack] = []
        self.counts: list[int] = []

    @property
    def taken(self) -> int:
        return sum(self.counts)

    @rule()
    def call(self) -> None:
        stack = ExitStack()
        if self.taken >= MAXIMUM:
            with pytest.raises(Overloaded, match=f"has {self.taken} requests in its queue, which is full"):
                stack.enter_context(self.places.one())
            return
        stack.enter_context(self.places.one())
        self.calls.append(stack)
        self.counts.append(1)

    @precondition(lambda self: 1 in self.counts)
    @rule(data=st.data(), prompts=st.lists(NUMBERS, min_size=1, max_size=4))
    def ask_for_sequences(self, data: st.DataObject, prompts: list[dict[str, Any]]) -> None:
        place = data.draw(st.sampled_from([i for i, count in enumerate(self.counts) if count == 1]))
        requests = [GenerationRequest("a", parameters) for parameters in prompts]
        count = sum(map(sequences, prompts))
        refusal: type[LmiError] | None = None
        if count > MAXIMUM:
            refusal = InvalidParameter
        elif self.taken - 1 + count > MAXIMUM:
            refusal = Overloaded
        if refusal is not None:
            with pytest.raises(refusal, match=str(count)):
                self.calls[place].enter_context(self.places.for_sequences(requests))
            return
        self.calls[place].enter_context(self.places.for_sequences(requests))
        self.counts[place] = count

    @precondition(lambda self: self.calls)
    @rule(data=st.data())
    def end(self, data: st.DataObject) -> None:
        place = data.draw(st.integers(0, len(self.calls) - 1))
        self.calls.pop(place).close()
        self.counts.pop(place)

    @invariant()
    def a_full_queue_is_told(self) -> None:
        if self.taken < MAXIMUM:
            self.places.check()
        else:
            with pytest.raises(Overloaded):
                self.places.check()

    def teardown(self) -> None:
        """All places are free once every call has ended."""
        for stack in self.calls:
            stack.close()
        with ExitStack() as every:
            for _ in range(MAXIMUM):
                every.enter_context(self.places.one())
            with pytest.raises(Overloaded):
                self.places.check()


TestQueue: Any = Queue.TestCase
TestQueue.settings = settings(max_examples=50, stateful_step_count=30, deadline=None, derandomize=True, database=None)
