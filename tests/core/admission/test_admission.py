"""The places of a queue under random operations, beside a reference that counts them."""

from contextlib import ExitStack
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from lmi_core.admission.admission import NUMBERS_OF_SEQUENCES, Admission, Ticket
from lmi_core.errors import InvalidParameter, LmiError, Overloaded
from lmi_core.generation.request import GenerationRequest

MAXIMUM = 6
# Of sequences; what is no number is refused later, and takes one place until then.
NUMBERS = st.dictionaries(
    st.sampled_from(NUMBERS_OF_SEQUENCES), st.sampled_from([-3, 0, 1, 2, 3, 8, "x", None, 1.5, "2", 3.0])
)


def sequences(parameters: dict[str, Any]) -> int:
    return max([1, *(int(number) for number in parameters.values() if number not in ("x", None, 1.5))])


class Queue(RuleBasedStateMachine):
    """A queue, and the calls in it: each with its ticket, and the number of its places."""

    def __init__(self) -> None:
        super().__init__()
        self.admission = Admission("model", MAXIMUM)
        self.calls: list[Ticket] = []
        self.counts: list[int] = []

    @property
    def taken(self) -> int:
        return sum(self.counts)

    @rule()
    def call(self) -> None:
        if self.taken >= MAXIMUM:
            with pytest.raises(Overloaded, match=f"has {self.taken} requests in its queue, which is full"):
                self.admission.admit()
            return
        self.calls.append(self.admission.admit())
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
                self.calls[place].extend(requests)
            return
        self.calls[place].extend(requests)
        self.counts[place] = count

    @precondition(lambda self: self.calls)
    @rule(data=st.data())
    def end(self, data: st.DataObject) -> None:
        place = data.draw(st.integers(0, len(self.calls) - 1))
        with self.calls.pop(place):
            pass
        self.counts.pop(place)

    @invariant()
    def a_full_queue_is_told(self) -> None:
        if self.taken < MAXIMUM:
            self.admission.check()
        else:
            with pytest.raises(Overloaded):
                self.admission.check()

    def teardown(self) -> None:
        """All places are free once every call has ended."""
        for ticket in self.calls:
            with ticket:
                pass
        assert self.admission.taken == 0
        with ExitStack() as every:
            for _ in range(MAXIMUM):
                every.enter_context(self.admission.admit())
            with pytest.raises(Overloaded):
                self.admission.check()


TestQueue: Any = Queue.TestCase
TestQueue.settings = settings(max_examples=50, stateful_step_count=30, deadline=None, derandomize=True, database=None)
