from collections.abc import Iterator
from typing import cast

import pytest

from lmi_core.workers.channel import Channel
from lmi_plugins.torch_engine.worker import burst as bursts
from lmi_plugins.torch_engine.worker.burst import burst


class ScriptedChannel:
    """A channel whose `pending` returns scripted messages in turn; None means none yet."""

    def __init__(self, *messages: bytes | None) -> None:
        self._messages: Iterator[bytes | None] = iter(messages)

    def receive(self) -> bytes:
        message = next(self._messages)
        assert message is not None
        return message

    def pending(self) -> bytes | None:
        return next(self._messages)


def received(*messages: bytes | None) -> list[bytes]:
    return list(burst(cast(Channel, ScriptedChannel(*messages))))


def test_what_comes_right_behind_a_message_is_taken_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bursts, "MAX_BURST", 60.0)
    assert received(b"a", b"b", None, b"c", None, b"d", None, None, b"later") == [b"a", b"b", b"c", b"d"]


def test_one_message_alone() -> None:
    assert received(b"a", None, None, b"later") == [b"a"]


def test_a_burst_without_an_end_is_not_waited_for() -> None:
    assert len(received(*[b"a", *[None, b"b"] * 100])) < 100
