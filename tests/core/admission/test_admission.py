"""The places of a queue under random operations, beside a reference that counts them."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from lmi_core.admission.admission import NUMBERS_OF_SEQUENCES, Admission, Ticket, current_key
from lmi_core.errors import InvalidParameter, LmiError, Overloaded
from lmi_core.generation.request import GenerationRequest

MAXIMUM, RESERVE = 12, 2
KEYS = st.sampled_from([None, "ann", "bob", "eve"])
# Of sequences; what is no number is refused later, and takes one place until then.
NUMBERS = st.dictionaries(
    st.sampled_from(NUMBERS_OF_SEQUENCES), st.sampled_from([-3, 0, 1, 2, 3, 8, "x", None, 1.5, "2", 3.0])
)


def sequences(parameters: dict[str, Any]) -> int:
    return max([1, *(int(number) for number in parameters.values() if number not in ("x", None, 1.5))])


@contextmanager
def calls_of(key: str | None) -> Iterator[None]:
    token = current_key.set(key)
    try:
        yield
    finally:
        current_key.reset(token)


class Queue(RuleBasedStateMachine):
    """A queue, and the calls in it: each with its ticket, its key, and the number of its places."""

    def __init__(self) -> None:
        super().__init__()
        self.admission = Admission("model", MAXIMUM)
        self.calls: list[Ticket] = []
        self.keys: list[str | None] = []
        self.counts: list[int] = []

    @property
    def taken(self) -> int:
        return sum(self.counts)

    def own(self, key: str | None) -> int:
        return sum(count for count, each in zip(self.counts, self.keys, strict=True) if each == key)

    def leaves_too_few(self, key: str | None, more: int) -> bool:
        kept = min(RESERVE, self.own(key) + more - 1)
        return key is not None and more > 0 and self.taken + more + kept > MAXIMUM

    @rule(key=KEYS)
    def call(self, key: str | None) -> None:
        refusal = None
        if self.taken >= MAXIMUM:
            refusal = f"has {self.taken} requests in its queue, which is full"
        elif self.leaves_too_few(key, 1):
            refusal = f"this key has {self.own(key)} of the {MAXIMUM} places"
        with calls_of(key):
            if refusal is not None:
                with pytest.raises(Overloaded, match=refusal):
                    self.admission.admit()
                return
            self.calls.append(self.admission.admit())
        self.keys.append(key)
        self.counts.append(1)

    @precondition(lambda self: 1 in self.counts)
    @rule(data=st.data(), prompts=st.lists(NUMBERS, min_size=1, max_size=4))
    def ask_for_sequences(self, data: st.DataObject, prompts: list[dict[str, Any]]) -> None:
        place = data.draw(st.sampled_from([i for i, count in enumerate(self.counts) if count == 1]))
        requests = [GenerationRequest("a", parameters) for parameters in prompts]
        count = sum(map(sequences, prompts))
        key = self.keys[place]
        refusal: type[LmiError] | None = None
        if count > MAXIMUM - (RESERVE if key is not None else 0):
            refusal = InvalidParameter
        elif self.taken - 1 + count > MAXIMUM or self.leaves_too_few(key, count - 1):
            refusal = Overloaded
        if refusal is not None:
            with pytest.raises(refusal, match=f"{count}|{count - 1} more"):
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
        self.keys.pop(place)

    @invariant()
    def a_full_queue_is_told(self) -> None:
        if self.taken < MAXIMUM:
            self.admission.check()
        else:
            with pytest.raises(Overloaded):
                self.admission.check()

    @invariant()
    def a_key_without_a_place_finds_one_until_all_are_taken(self) -> None:
        if self.taken < MAXIMUM:
            with calls_of("new"):
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
