"""`lmi generate`: the continuation of a prompt, or the answer to it, in the terminal."""

import sys
from typing import Any

from lmi_handlers.cli.answer_stream import AnswerFailed, Statistics, stream_chunks
from lmi_handlers.cli.connection import Connection, connect


async def generate(connection: Connection, prompt: str | None, parameters: dict[str, Any], *, as_chat: bool) -> bool:
    """Print the text as it is generated, and return whether it is complete.

    `-` or None reads the prompt from standard input; `as_chat` applies the chat template. Raise ConfigurationError
    without a model or server.
    """
    # A final newline on standard input, which `echo` adds, would change the output.
    text = sys.stdin.read().removesuffix("\n").removesuffix("\r") if prompt in (None, "-") else prompt
    async with connect(connection) as client:
        statistics = Statistics()
        given: dict[str, Any] = {"messages": [{"role": "user", "content": text}]} if as_chat else {"prompt": text}
        reason = None
        path = "v1/chat/completions" if as_chat else "v1/completions"
        try:
            async for choice in stream_chunks(client, path, {**given, **parameters}, statistics):
                reason = choice.get("finish_reason") or reason
                print(choice.get("text") or choice.get("delta", {}).get("content") or "", end="", flush=True)
        except AnswerFailed as error:
            print(f"lmi: {error}", file=sys.stderr)
            return False
        print(flush=True)
        print(statistics.line, file=sys.stderr)
        if reason == "length":
            print("the limit of tokens was reached before the end: --max-tokens sets another", file=sys.stderr)
        return True
