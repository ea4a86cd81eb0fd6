"""The deadline of a connection's phase, checked from time to time."""

from enum import StrEnum

from lmi_handlers.http.connections.limits import ConnectionLimits


class Phase(StrEnum):
    """The phases in which the server waits, with their names in the log."""

    HEADERS = "no complete headers within header_timeout"
    BODY = "a body that arrived too slowly for body_timeout"
    ANSWER = "no answer"  # it is the server's turn, which the model's time limits bound
    WRITE = "an answer that was read too slowly for write_timeout"
    IDLE = "no request within keep_alive_timeout"


class Deadline:
    """The time since the start of a phase or, for bodies and answers, since enough bytes were transferred."""

    __slots__ = ("_limits", "_moved", "_since", "_turn", "phase")

    def __init__(self, limits: ConnectionLimits, now: float) -> None:
        self.phase = Phase.HEADERS
        self._limits = limits
        self._turn = 0
        self._since = now
        self._moved = 0

    def has_passed(self, phase: Phase, turn: int, moved: int, now: float) -> bool:
        """Return whether the phase has lasted too long.

        `turn` distinguishes requests, and `moved` is the number of bytes transferred so far.
        """
        seconds = self._seconds(phase)
        begins = phase is not self.phase or turn != self._turn
        if begins or moved - self._moved >= self._limits.min_transfer_rate * seconds:
            self.phase, self._turn, self._moved, self._since = phase, turn, moved, now
            return False
        return now - self._since > seconds

    def _seconds(self, phase: Phase) -> float:
        match phase:
            case Phase.HEADERS:
                return self._limits.header_timeout
            case Phase.BODY:
                return self._limits.body_timeout
            case Phase.WRITE:
                return self._limits.write_timeout
            case Phase.IDLE:
                return self._limits.keep_alive_timeout
            case Phase.ANSWER:
                return float("inf")
