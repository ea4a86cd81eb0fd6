"""`lmi demo`: the model of this package, for a first answer in the terminal and in a browser."""

import asyncio
import os
import sys
import webbrowser
from pathlib import Path

import aiohttp

from lmi_core.logs.logs import flush_log
from lmi_handlers.cli.answer_stream import AnswerFailed, Statistics, stream_chunks
from lmi_handlers.cli.serving import addresses, run
from lmi_handlers.container.search import Arguments
from lmi_handlers.http.server import Server

QUESTION = "What is Deep Learning?"


def run_demo(runner: asyncio.Runner, model: Path, port: int | None, *, opens: bool | None) -> None:
    """Serve the model until a signal, after one answer in the terminal."""
    showing: list[asyncio.Task[None]] = []

    def welcome(server: Server) -> None:
        has_display = sys.platform in ("darwin", "win32") or any(map(os.environ.get, ("DISPLAY", "WAYLAND_DISPLAY")))
        by_default = sys.stdout.isatty() and has_display
        showing.append(asyncio.create_task(_show(server, opens=by_default if opens is None else opens)))

    run(runner, Arguments((str(model),), port=port), drain_seconds=0, welcome=welcome)


async def _show(server: Server, *, opens: bool) -> None:
    """Print the addresses and one answer of a server that is ready."""
    flush_log()
    print(*addresses(server), "", f"> {QUESTION}", sep="\n", flush=True)
    payload = {"messages": [{"role": "user", "content": QUESTION}]}
    statistics = Statistics()
    try:
        async with aiohttp.ClientSession(f"{server.url}/") as client:
            async for choice in stream_chunks(client, "v1/chat/completions", payload, statistics):
                print(choice["delta"].get("content") or "", end="", flush=True)
        print(f"\n{statistics.line}")
    except AnswerFailed as error:
        print(f"lmi: {error}", file=sys.stderr)
    print("\nAsk your own in the chat; Ctrl-C ends the demo.", flush=True)
    if opens:
        await asyncio.to_thread(webbrowser.open, server.url)
