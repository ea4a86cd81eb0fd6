"""The terminal of `lmi chat`: a prompt for messages, and answers as they are streamed."""

import os
import sys
import termios
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from prompt_toolkit import PromptSession
from prompt_toolkit.enums import DEFAULT_BUFFER
from prompt_toolkit.filters import has_focus
from prompt_toolkit.history import FileHistory, History, InMemoryHistory
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from rich.console import Console, ConsoleOptions, RenderResult
from rich.live import Live
from rich.markdown import Markdown
from rich.segment import Segment

REFRESHES_PER_SECOND = 12


def message_prompt(environment: Mapping[str, str]) -> PromptSession[str]:
    """Return a prompt for messages of several lines; it raises EOFError at Ctrl-D and Ctrl-C in an empty message."""
    keys = KeyBindings()
    in_message = has_focus(DEFAULT_BUFFER)  # not in a search of the history

    @keys.add("enter", filter=in_message)
    def send(event: KeyPressEvent) -> None:
        buffer = event.current_buffer
        if buffer.document.current_line_before_cursor.endswith("\\"):
            buffer.delete_before_cursor()
            buffer.newline(copy_margin=False)
        else:
            buffer.validate_and_handle()

    @keys.add("escape", "enter", filter=in_message)
    def add_line(event: KeyPressEvent) -> None:
        event.current_buffer.newline(copy_margin=False)

    @keys.add("c-c", filter=in_message)
    @keys.add("<sigint>")
    def clear_or_end(event: KeyPressEvent) -> None:
        if event.current_buffer.text:
            event.current_buffer.reset()
        else:
            event.app.exit(exception=EOFError)

    history = _history(environment)
    return PromptSession("> ", multiline=True, prompt_continuation="  ", history=history, key_bindings=keys)


def _history(environment: Mapping[str, str]) -> History:
    """Return the messages of earlier chats, from a file in the folder for users' state of the XDG specification."""
    state = environment.get("XDG_STATE_HOME")
    try:
        file = (Path(state) if state else Path.home() / ".local" / "state") / "lmi" / "chat_history"
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        os.close(os.open(file, os.O_CREAT | os.O_WRONLY, 0o600))
        file.chmod(0o600)  # if there was one
    except (OSError, RuntimeError):  # a read-only home, for example, or none
        return InMemoryHistory()
    return FileHistory(file)


@contextmanager
def typing_unseen() -> Iterator[None]:
    """Let the terminal not echo what is typed, which would corrupt an answer; the next prompt shows it."""
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        yield
        return
    before = termios.tcgetattr(sys.stdin)
    silent = [*before]
    silent[3] &= ~termios.ECHO
    termios.tcsetattr(sys.stdin, termios.TCSANOW, silent)
    try:
        yield
    finally:
        termios.tcsetattr(sys.stdin, termios.TCSANOW, before)


class PlainAnswer:
    """An answer that is printed piece by piece."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._in_line = False  # whether the last line has no end yet

    def reason(self, text: str) -> None:
        self._print(text, "dim italic")

    def write(self, text: str) -> None:
        self._print(text, None)

    def finish(self) -> None:
        """End the last line."""
        if self._in_line:
            self._console.print()
        self._in_line = False

    def _print(self, text: str, style: str | None) -> None:
        self._console.print(text, end="", style=style)
        self._in_line = True


class MarkdownAnswer(PlainAnswer):
    """An answer in Markdown, whose last block is redrawn as it grows; earlier blocks stay unchanged."""

    def __init__(self, console: Console) -> None:
        super().__init__(console)
        self._page = Console()  # wraps lines, unlike the other
        self._block = _Block("")
        self._live: Live | None = None

    def reason(self, text: str) -> None:
        self._stop()
        super().reason(text)

    def write(self, text: str) -> None:
        if self._live is None:
            super().finish()
            self._start(text)
        else:
            self._block.text += text
        while "\n" in text and (begin := _second_block(self._block.text)):
            text = self._block.text[begin:]
            self._block.text = self._block.text[:begin]
            self._stop()
            self._page.print()
            self._start(text)

    def finish(self) -> None:
        self._stop()
        super().finish()

    def _start(self, text: str) -> None:
        self._block = _Block(text)
        self._live = Live(self._block, console=self._page, refresh_per_second=REFRESHES_PER_SECOND)
        self._live.start(refresh=True)

    def _stop(self) -> None:
        if self._live is not None:
            self._block.grows = False
            self._live.stop()
            self._live = None


class _Block:
    """Markdown whose last lines alone are shown while it grows, because others cannot be redrawn."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.grows = True

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        lines = console.render_lines(_markdown(self.text), options, pad=False)
        if lines and not any(segment.text for segment in lines[0]):  # rich separates lists and tables, even first ones
            del lines[0]
        for line in lines[1 - console.height :] if self.grows else lines:
            yield from line
            yield Segment.line()


def _markdown(text: str) -> Markdown:
    """Parse Markdown with the line breaks of the text preserved, as in other chats."""
    markdown = Markdown(text, hyperlinks=False)  # addresses are shown
    for token in markdown.parsed:
        for child in token.children or ():
            if child.type == "softbreak":
                child.type = "hardbreak"
    return markdown


def _second_block(text: str) -> int:
    """Return where the second block of Markdown begins, after which the first one no longer changes; 0 without one."""
    lines = [token.map[0] for token in Markdown(text).parsed if token.level == 0 and token.map is not None]
    return sum(len(line) + 1 for line in text.split("\n")[: lines[1]]) if len(lines) > 1 else 0
