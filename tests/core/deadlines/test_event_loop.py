import pytest

from lmi_core.deadlines.bounded import NeedsTimeError, on_event_loop, without_delay


def test_only_work_on_the_event_loop_is_marked() -> None:
    def nested() -> tuple[bool, bool]:
        return without_delay(on_event_loop), on_event_loop()

    assert not on_event_loop()
    assert without_delay(nested) == (True, True)
    assert not on_event_loop()


def test_errors_pass() -> None:
    def fail() -> None:
        raise NeedsTimeError

    with pytest.raises(NeedsTimeError):
        without_delay(fail)
    assert not on_event_loop()
