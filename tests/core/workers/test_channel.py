"""The worker's end of the connection: messages that come together, and signs of life within a step."""

import time
from collections.abc import Iterator

import pytest

from lmi_core.workers import channel as channels
from lmi_core.workers.channel import BEAT_SECONDS, Channel


class ScriptedChannel(Channel):
    """A channel whose `pending` returns scripted messages in turn; None means none yet."""

    def __init__(self, *messages: bytes | None) -> None:
        self._messages: Iterator[bytes | None] = iter(messages)
        self._beats_at = 0.0
        self.sent: list[bytes] = []

    def send(self, message: bytes) -> None:
        self.sent.append(message)

    def receive(self) -> bytes:
        message = next(self._messages)
        assert message is not None
        return message

    def pending(self) -> bytes | None:
        return next(self._messages)


def received(*messages: bytes | None) -> list[bytes]:
    return list(ScriptedChannel(*messages).burst())


def test_what_comes_right_behind_a_message_is_taken_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(channels, "MAX_BURST", 60.0)
    assert received(b"a", b"b", None, b"c", None, b"d", None, None, b"later") == [b"a", b"b", b"c", b"d"]


def test_one_message_alone() -> None:
    assert received(b"a", None, None, b"later") == [b"a"]


def test_a_burst_without_an_end_is_not_waited_for() -> None:
    assert len(received(*[b"a", *[None, b"b"] * 100])) < 100


def test_at_most_one_sign_of_life_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, channel, sent = [100.0], ScriptedChannel(), []
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    for _ in range(40):
        channel.beat()
        sent.append(len(channel.sent))
        clock[0] += BEAT_SECONDS / 4
    assert sent == [1 + i // 4 for i in range(40)]
