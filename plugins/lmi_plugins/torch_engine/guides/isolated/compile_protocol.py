"""The messages between a compile server and its clients: a `Job` for each guide, and its outcome."""

from typing import Literal

import msgspec

from lmi_plugins.torch_engine.messages.guide_limits import GuideLimits
from lmi_plugins.torch_engine.messages.requests import Guide

Engine = Literal["torch", "vllm", "guidance"]  # the last: vLLM with llguidance in place of xgrammar


class Job(msgspec.Struct, array_like=True, frozen=True):
    """A guide to compile, as the engine does that is to follow it."""

    guide: Guide
    limits: GuideLimits
    engine: Engine = "torch"


class Compiled(msgspec.Struct, tag=True):
    """A compiled grammar, as xgrammar serializes it."""

    grammar: str


class Mistake(msgspec.Struct, tag=True):
    """A mistake in a guide, in words for its author."""

    message: str


class Exceeded(msgspec.Struct, tag=True):
    """The limit that a guide has exceeded."""

    limit: Literal["size", "compile_seconds", "memory", "mask_seconds"]


class Ended(msgspec.Struct, tag=True):
    """The end of a process that was killed from outside, or crashed, or could not be started."""

    reason: str


Outcome = Compiled | Mistake | Exceeded | Ended

encode = msgspec.msgpack.Encoder().encode
decode_job = msgspec.msgpack.Decoder(Job).decode
_decode_outcome = msgspec.msgpack.Decoder(Outcome).decode


def decode_outcome(message: bytes) -> Outcome:
    outcome: Outcome = _decode_outcome(message)
    return outcome
