"""The `lmi` command."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from importlib.metadata import version
from pathlib import Path
from typing import Annotated

import typer

from lmi_core.errors import BackendGivenUp, ConfigurationError

EXIT_GIVEN_UP = 1
EXIT_CONFIGURATION = 2

app = typer.Typer(
    name="lmi",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"lmi-handlers {version('lmi-handlers')}")
        raise typer.Exit


@app.callback()
def lmi(
    show_version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Serve DJLServing/LMI model directories: `lmi serve DIR`."""


class LogLevel(StrEnum):
    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


class NewKind(StrEnum):
    FORMATTER = "formatter"
    HANDLER = "handler"
    BACKEND = "backend"


Directory = Annotated[
    str,
    typer.Argument(
        metavar="DIR",
        help="A model directory (serving.properties and/or the model's own files), or a folder of several; or the"
        " s3:// URL of one.",
        show_default=False,
    ),
]
PluginsDirectory = Annotated[
    Path | None,
    typer.Option("--plugins-dir", metavar="DIR", help="A folder of Python files that add backends or formatters."),
]


@contextmanager
def _one_line_errors() -> Iterator[None]:
    """What is wrong with a model directory is told in one line, with no traceback."""
    try:
        yield
    except ConfigurationError as error:
        print(f"lmi: {error.message}", file=sys.stderr)
        raise typer.Exit(EXIT_CONFIGURATION) from None
    except BackendGivenUp as error:
        print(f"lmi: {error.message}", file=sys.stderr)
        raise typer.Exit(EXIT_GIVEN_UP) from None


@app.command()
def serve(
    directory: Directory,
    host: Annotated[str, typer.Option(help="The address to listen on; 0.0.0.0 is every one.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="The port; 0 takes a free one.")] = 8080,
    plugins_directory: PluginsDirectory = None,
    drain_seconds: Annotated[
        float, typer.Option("--drain-seconds", min=0, help="How long requests may go on after SIGTERM or Ctrl-C.")
    ] = 30,
    log_level: Annotated[LogLevel, typer.Option(help="The least serious messages to log.")] = LogLevel.INFO,
) -> None:
    """Serve the model directory DIR over HTTP until Ctrl-C.

    GET /ping answers 200 once the model is loaded. Exit status 2 and one line say what is wrong with DIR; exit status 1
    that an engine crashed again and again (retry_threshold).
    """
    from lmi_core.logs import configure_logging
    from lmi_core.remote.fetching import local_directory
    from lmi_handlers.serving import run

    with _one_line_errors():
        configure_logging(log_level.value)
        run(local_directory(directory), host, port, plugins_directory, drain_seconds, log_level.value)


@app.command()
def check(directory: Directory, plugins_directory: PluginsDirectory = None) -> None:
    """Read the model directory DIR, start nothing, and print what `lmi serve DIR` would do.

    Shows the backend and why it was chosen, the output formatters, and every option: its value and where it came from.
    """
    from lmi_core.remote.fetching import cached_directory
    from lmi_handlers.report import print_check

    with _one_line_errors():
        print_check(cached_directory(directory), plugins_directory, os.environ)


@app.command("try")
def try_(
    directory: Directory,
    prompt: Annotated[str | None, typer.Option(help="The prompt to ask with.", show_default=False)] = None,
    body: Annotated[Path | None, typer.Option(help="A file with a whole request body, in place of a prompt.")] = None,
    stream: Annotated[bool, typer.Option("--stream", help="Ask for a stream.")] = False,
    route: Annotated[str, typer.Option(help="The path to POST to.")] = "/invocations",
    say: Annotated[str | None, typer.Option(help="What the scripted backend is to say.", show_default=False)] = None,
    real: Annotated[bool, typer.Option("--real", help="Ask the model itself, not the scripted backend.")] = False,
    watch: Annotated[bool, typer.Option("--watch", help="Again each time that a file is saved.")] = False,
    plugins_directory: PluginsDirectory = None,
) -> None:
    """Send one request through the model directory DIR and print each chunk of the answer with its time.

    Runs DIR's own formatters and its handle function. In place of the model, the scripted backend answers.
    """
    from lmi_core.remote.fetching import local_directory
    from lmi_handlers.try_command import Trial, run_trial
    from lmi_handlers.try_command import watch as watch_trial

    with _one_line_errors():
        trial = Trial(local_directory(directory), plugins_directory, prompt, body, stream, route, say, real)
        if watch:
            watch_trial(trial)
        if not run_trial(trial):
            raise typer.Exit(1)


@app.command()
def new(
    kind: Annotated[NewKind, typer.Argument(help="What to begin: a formatter, a handler or a backend.")],
    name: Annotated[str, typer.Argument(help="Its name, and that of the folder that is written.")],
) -> None:
    """Write a formatter, a handler (an API dialect) or a backend that works, and its test, into the folder NAME."""
    from lmi_handlers.new_command import write_new

    with _one_line_errors():
        print(write_new(kind.value, name, Path()))


@app.command()
def plugins(plugins_directory: PluginsDirectory = None) -> None:
    """List the backends, output formatters and handlers, and where each comes from."""
    from lmi_handlers.report import print_plugins

    with _one_line_errors():
        print_plugins(plugins_directory)


@app.command()
def options(
    markdown: Annotated[bool, typer.Option("--markdown", help="As the tables of docs/options.md.")] = False,
    plugins_directory: PluginsDirectory = None,
) -> None:
    """Print every option that serving.properties can hold, with its default and its meaning."""
    from lmi_handlers.report import print_options

    with _one_line_errors():
        print_options(markdown, plugins_directory)


def main() -> None:
    app()


if __name__ == "__main__":
    main()
