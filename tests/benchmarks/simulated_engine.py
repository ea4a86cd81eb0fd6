"""The command `lmi` with a torch engine that computes nothing, and takes the time that a GPU would."""

import time
from unittest.mock import patch

from lmi_core.generation.output import GenerationStep, Token
from lmi_core.workers.channel import Channel
from lmi_core.workers.messages import ALIVE, Ping, encode
from lmi_handlers.cli.entry import main as lmi
from lmi_plugins.torch_engine.client import client, early, engine_worker
from lmi_plugins.torch_engine.messages.protocol import Abort, Load, Loaded, Steps, Submit, decode_to_worker

STEP = 0.04  # seconds, of every step: as of a large model on a GPU
SEQUENCES = 32  # that run at once
TARGET = "tests.benchmarks.simulated_engine:run"
LENGTH = 4096  # of a sequence, at most


def run(channel: Channel) -> None:
    """Give each running request a token in each step: the worker's target."""
    first = channel.begin(decode_to_worker)
    assert isinstance(first, Load), first
    channel.send(encode(Loaded(LENGTH, [])))
    left = dict[str, int]()  # tokens, of each request in order of arrival
    due = 0.0
    while True:
        message = channel.pending() if left else channel.receive()
        while message is not None:
            _handle(message, left, channel)
            message = channel.pending()
        due = max(due, time.monotonic() - STEP) + STEP
        time.sleep(max(0.0, due - time.monotonic()))
        steps = [(each, _step(left, each)) for each in list(left)[:SEQUENCES]]
        if steps:
            channel.send(encode(Steps(steps, [])))


def _step(left: dict[str, int], request_id: str) -> GenerationStep:
    left[request_id] -= 1
    if left[request_id]:
        return GenerationStep([Token(5, " word")])
    del left[request_id]
    return GenerationStep([Token(5, " word")], "length")


def _handle(message: bytes, left: dict[str, int], channel: Channel) -> None:
    match decode_to_worker(message):
        case Submit(request):
            left[request.request_id] = request.parameters.max_new_tokens
        case Abort(request_id):
            left.pop(request_id, None)
        case Ping():
            channel.send(ALIVE)


if __name__ == "__main__":
    with (
        patch.object(early, "is_selected", lambda _: False),
        patch.object(engine_worker, "TARGET", TARGET),
        patch.object(client, "TARGET", TARGET),
        patch.object(client, "PREPARE", None),
    ):
        lmi()
