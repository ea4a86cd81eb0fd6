"""`lmi chat`: a conversation in the terminal."""

import asyncio
import contextlib
import json
import os
import sys
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
from rich.console import Console

from lmi_core.errors import ConfigurationError
from lmi_handlers.cli.answer_stream import AnswerFailed, Statistics, stream_chunks
from lmi_handlers.cli.chat_terminal import MarkdownAnswer, PlainAnswer, message_prompt, typing_unseen
from lmi_handlers.cli.connection import Connection, connect

PATH = "v1/chat/completions"
HELP = """\
/system TEXT       set the system message; without TEXT, remove it
/set NAME VALUE    set a request field, such as temperature 0.7 or model french;
                   without VALUE, reset it; without NAME, list what is set
/retry             generate the last answer again
/clear             forget the conversation
/save FILE         write the conversation to a file, as JSON
/help              show this list
/exit              end the chat, like Ctrl-D

Enter sends a message; Alt-Enter, or a backslash at the end of the line,
starts a new line. Text pasted over several lines is one message.
The arrow keys and Ctrl-R find earlier messages, also those of earlier chats.
Ctrl-C stops an answer or clears a half-typed message; with neither, it ends
the chat."""


@dataclass
class Conversation:
    """The messages so far, and the fields of the next request."""

    system: str = ""
    messages: list[dict[str, str]] = field(default_factory=list)
    fields: dict[str, Any] = field(default_factory=dict)

    @property
    def payload(self) -> dict[str, Any]:
        system = [{"role": "system", "content": self.system}] if self.system else []
        return {"messages": [*system, *self.messages], **self.fields}


class ChatSession:
    """A conversation in a terminal with one server."""

    def __init__(self, client: aiohttp.ClientSession, runner: asyncio.Runner, conversation: Conversation) -> None:
        self._client = client
        self._runner = runner
        self._conversation = conversation
        self._ignored = ""  # what the server said last that it ignores
        self._console = Console(highlight=False, markup=False, soft_wrap=True)
        self._prompt = message_prompt(os.environ) if sys.stdin.isatty() and sys.stdout.isatty() else None
        self._commands: dict[str, Callable[[str], None]] = {
            "system": self._system,
            "set": self._set,
            "retry": self._retry,
            "clear": lambda _: self._conversation.messages.clear(),
            "save": self._save,
            "help": lambda _: self._console.print(HELP),
        }

    def run(self) -> None:
        """Read and answer messages until the end of the input, or /exit."""
        while True:
            try:
                line = self._read().strip()
            except (EOFError, KeyboardInterrupt):
                return
            if line in ("/exit", "/quit"):
                return
            if line.startswith("/"):
                self._command(line)
            elif line:
                self._conversation.messages.append({"role": "user", "content": line})
                self._answer()

    def _read(self) -> str:
        if self._prompt is None:
            return input("> " if sys.stdin.isatty() else "")
        return self._runner.run(self._prompt.prompt_async())

    def _command(self, line: str) -> None:
        name, _, argument = line.removeprefix("/").partition(" ")
        if name in self._commands:
            self._commands[name](argument.strip())
        else:
            self._console.print(f"there is no /{name}; /help lists the commands")

    def _answer(self) -> None:
        """Print the streamed answer and add it to the conversation; Ctrl-C stops it."""
        parts: list[str] = []
        statistics = Statistics()
        try:
            with typing_unseen():
                self._runner.run(self._print_answer(parts, statistics))
        except KeyboardInterrupt:
            self._console.print(" ...", style="dim")
        except AnswerFailed as error:
            self._console.print(f"error: {error}", style="red")
        if parts:
            self._conversation.messages.append({"role": "assistant", "content": "".join(parts)})
            self._console.print(statistics.line, style="dim")
        else:
            self._conversation.messages.pop()

    async def _print_answer(self, parts: list[str], statistics: Statistics) -> None:
        answer = (MarkdownAnswer if sys.stdout.isatty() else PlainAnswer)(self._console)
        try:
            async for choice in stream_chunks(self._client, PATH, self._conversation.payload, statistics):
                delta = choice.get("delta", {})
                if reasoning := delta.get("reasoning") or delta.get("reasoning_content"):
                    answer.reason(reasoning)
                if content := delta.get("content"):
                    parts.append(content)
                    answer.write(content)
        finally:
            answer.finish()
        names = statistics.ignored
        if names and names != self._ignored:  # once
            first = names.partition(",")[0]
            self._console.print(f"the server ignores {names}: /set {first} removes it", style="yellow")
        self._ignored = names

    def _system(self, text: str) -> None:
        self._conversation.system = text

    def _set(self, argument: str) -> None:
        name, _, value = argument.partition(" ")
        if "=" in name:
            name, _, value = argument.partition("=")
        fields = self._conversation.fields
        if not value:
            self._console.print(self._reset(name), style="dim")
            return
        fields[name] = value
        with contextlib.suppress(json.JSONDecodeError):  # a text needs no quotation marks
            fields[name] = json.loads(value)

    def _reset(self, name: str) -> str:
        """Stop sending a field, and report it; without a name, list the sent fields."""
        fields = self._conversation.fields
        if name in fields:
            del fields[name]
            return f"{name} is no longer sent"
        sent = ", ".join(f"{name}={json.dumps(value, ensure_ascii=False)}" for name, value in fields.items())
        unknown = f"{name} has no value: /set {name} VALUE gives it one. " if name else ""
        return f"{unknown}Sent with each message: {sent or 'nothing else'}"

    def _retry(self, _: str) -> None:
        messages = self._conversation.messages
        if messages and messages[-1]["role"] == "assistant":
            messages.pop()
        if messages:
            self._answer()
        else:
            self._console.print("there is nothing to answer yet")

    def _save(self, file: str) -> None:
        if not file:
            self._console.print("/save needs the name of a file")
            return
        try:
            Path(file).write_text(json.dumps(self._conversation.payload, indent=2, ensure_ascii=False))
        except OSError as error:
            self._console.print(f"{file} cannot be written: {error.strerror}", style="red")


def run_chat(connection: Connection, conversation: Conversation) -> None:
    """Chat until the user ends it. Raise ConfigurationError without a model or server."""
    with asyncio.Runner() as runner:
        stack = AsyncExitStack()
        try:
            client = runner.run(stack.enter_async_context(connect(connection)))
            if sys.stdin.isatty():
                print(f"{connection.target}: /help lists the commands", file=sys.stderr)
            ChatSession(client, runner, conversation).run()
        except KeyboardInterrupt:  # while the model was loaded
            raise ConfigurationError("interrupted") from None
        finally:
            runner.run(stack.aclose())
