"""Messages that were sent together."""

import time
from collections.abc import Iterator

from lmi_core.workers.channel import Channel

# Maximum seconds between two messages of a burst, and from its first to its last, while nothing else waits.
BURST_GAP, MAX_BURST = 0.0003, 0.003


def burst(channel: Channel) -> Iterator[bytes]:
    """Yield the next message and those immediately after it, so that requests sent together start together."""
    message: bytes | None = channel.receive()
    last_look = time.monotonic() + MAX_BURST
    while message is not None:
        yield message
        message = channel.pending()
        if message is None and time.monotonic() < last_look:
            time.sleep(BURST_GAP)
            message = channel.pending()
