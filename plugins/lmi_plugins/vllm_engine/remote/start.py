"""The target of an actor of a Ray cluster that runs vLLM's core."""

import asyncio
import socket
from typing import TYPE_CHECKING

from lmi_core.errors import ConfigurationError
from lmi_core.workers.channel import Channel
from lmi_core.workers.messages import LoadFailed, encode
from lmi_plugins.vllm_engine.remote.messages import CoreStarted, LoadCore, decode_to_core

if TYPE_CHECKING:
    from lmi_plugins.vllm_engine.remote.core import Core


def run(channel: Channel) -> None:
    """Start the core that the server asks for, and answer the server until the core has ended."""
    load = channel.begin(decode_to_core)
    assert isinstance(load, LoadCore), load
    try:
        core = _start(load)
    except Exception as error:  # vLLM or the model's own code may raise anything
        channel.send(encode(LoadFailed.because_of(error, load.arguments["model"])))
        return
    channel.send(encode(CoreStarted()))
    asyncio.run(core.serve(channel.asynchronous()))


def _start(load: LoadCore) -> "Core":
    """Start a core. Raise ConfigurationError if vLLM is not as on the server's host, or refuses the arguments."""
    try:
        from lmi_plugins.vllm_engine.library import VERSION
        from lmi_plugins.vllm_engine.remote.core import Core
    except ImportError as error:
        raise ConfigurationError(f"vLLM cannot be imported on node {socket.gethostname()}: {error}") from error
    if VERSION.partition("+")[0] != load.version.partition("+")[0]:
        raise ConfigurationError(
            f"node {socket.gethostname()} has vLLM {VERSION}, and the server's host {load.version}: install the same"
        )
    return Core(load)
