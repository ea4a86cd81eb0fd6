"""Statuses of a dialect, which derive from the usual ones."""

from lmi_core.errors import Forbidden, InvalidPayload, Overloaded
from lmi_handlers.base.statuses import USUAL, Statuses


def test_a_dialect_s_own_statuses_come_before_the_usual_ones() -> None:
    statuses = Statuses(invalid=422, overloaded=429)
    assert [statuses.of(each("it")) for each in (InvalidPayload, Overloaded, Forbidden)] == [422, 429, 403]
    assert [USUAL.of(each("it")) for each in (InvalidPayload, Overloaded, Forbidden)] == [400, 503, 403]
