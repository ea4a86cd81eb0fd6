"""Resources of an ended engine that vLLM leaves to the garbage collector."""

import asyncio
import threading
from typing import Any

from lmi_plugins.vllm_engine.library import AsyncLLM
from lmi_plugins.vllm_engine.socket_folder import remove_meeting_files

SOCKETS = ("input_socket", "output_socket", "first_req_send_socket", "first_req_rcv_socket", "stats_update_socket")
TERM_SECONDS = 5.0  # for ZeroMQ, whose context waits for sockets that are open


async def release(engine: AsyncLLM) -> None:
    """Free the remaining resources of a shut-down engine:

    ZeroMQ's context with its threads, pipes, and files. Call this on the event loop that reads its sockets.
    """
    resources: Any = getattr(engine.engine_core, "resources", None)
    for socket in [getattr(resources, name, None) for name in SOCKETS]:
        if socket is not None:
            socket.close(linger=0)
    if (context := getattr(resources, "ctx", None)) is not None:
        ending = threading.Thread(target=context.term, name="vllm-release", daemon=True)
        ending.start()
        await asyncio.to_thread(ending.join, TERM_SECONDS)
    processes: list[Any] = getattr(getattr(resources, "engine_manager", None), "processes", [])
    for process in processes:
        remove_meeting_files(process.pid)
    processes.clear()  # their pipes are closed with them
