"""The target of an actor of a Ray cluster that runs vLLM's core."""

import asyncio

from lmi_core.workers.channel import Channel
from lmi_core.workers.messages import LoadFailed, encode
from lmi_plugins.vllm_engine.remote.messages import CoreStarted, LoadCore, decode_to_core


def run(channel: Channel) -> None:
    """Start the core that the server asks for, and answer the server until the core has ended."""
    load = channel.begin(decode_to_core)
    assert isinstance(load, LoadCore), load
    try:
        from lmi_plugins.vllm_engine.remote.core import Core  # imports vLLM

        core = Core(load)
    except Exception as error:  # vLLM or the model's own code may raise anything
        channel.send(encode(LoadFailed.because_of(error, load.arguments["model"])))
        return
    channel.send(encode(CoreStarted()))
    asyncio.run(core.serve(channel.asynchronous()))
