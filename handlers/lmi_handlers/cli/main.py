"""The `lmi` command."""

import gc
import logging
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Annotated

import typer

from lmi_core.errors import BackendGivenUp, ConfigurationError, LmiError
from lmi_core.errors.fault import unreadable
from lmi_core.logs.logs import JSON, LOG_FORMAT_VARIABLE, flush_log
from lmi_core.remote.errors import Unreachable
from lmi_handlers.cli import arguments as option
from lmi_handlers.process.lifetime import FRONT_VARIABLE, GIVEN_UP

logger = logging.getLogger(__name__)

EXIT_GIVEN_UP = 1  # a new start may succeed
EXIT_CONFIGURATION = 2

app = typer.Typer(
    name="lmi",
    no_args_is_help=True,
    rich_markup_mode=None,  # plain help fits narrow terminals, and `[grpc]` is not markup
    context_settings={"help_option_names": ["-h", "--help"]},
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


def _print_error(error: LmiError) -> None:
    if os.environ.get(LOG_FORMAT_VARIABLE) == JSON:  # collectors of the log cannot read another line
        logger.critical("%s", error.message)
        return
    flush_log()
    print(f"lmi: {error.message}", file=sys.stderr)


def _collect_no_garbage() -> None:
    gc.disable()  # imports make none, looking for it takes a quarter of the time, and the process ends soon


@contextmanager
def _one_line_errors() -> Iterator[None]:
    """Turn configuration errors and crashed engines into one line on stderr and an exit status."""
    try:
        yield
    except ConfigurationError as error:
        _print_error(error)
        raise typer.Exit(EXIT_GIVEN_UP if isinstance(error, Unreachable) else EXIT_CONFIGURATION) from None
    except OSError as error:
        if error.filename is None:
            raise
        _print_error(ConfigurationError(unreadable(error)))
        raise typer.Exit(EXIT_CONFIGURATION) from None
    except BackendGivenUp as error:
        _print_error(error)
        raise typer.Exit(GIVEN_UP if FRONT_VARIABLE in os.environ else EXIT_GIVEN_UP) from None


@app.command()
def serve(
    models: option.Models = None,
    items: option.Items = None,
    model_store: option.ModelStore = None,
    config_file: option.ConfigFile = None,
    options: option.Options = None,
    host: option.Host = None,
    port: option.Port = None,
    grpc_port: option.GrpcPort = None,
    ray: option.RayAddress = None,
    servers: option.Servers = 1,
    pages: option.Pages = None,
    plugins_directory: option.PluginsDirectory = None,
    drain_seconds: option.DrainSeconds = 30,
    log_level: option.LogLevelOption = None,
    log_format: option.LogFormatOption = option.LogFormat.TEXT,
    access_log: option.AccessLog = True,
    strict: option.Strict = False,
    tgi_environment: option.TgiEnvironment = False,
    workflows: option.Workflows = None,
    install: option.Install = None,
) -> None:
    """Serve model directories over HTTP, and optionally gRPC, until Ctrl-C.

    \b
    lmi serve DIR                   a model directory, or a folder of several
    lmi serve ORG/NAME              a model of the Hugging Face hub
    lmi serve NAME=DIR NAME=DIR     several, by name
    lmi serve -m NAME:v1=file:/DIR  in DJLServing's notation
    lmi serve                       as in DJLServing's container: HF_MODEL_ID,
                                    SERVING_LOAD_MODELS, /opt/ml/model, ...

    Keys of a config.properties (-f), each also an environment variable, control the access to the server:
    api_keys_file (SERVING_API_KEYS_FILE), certificate_file and private_key_file, management_address and
    management_token_file, cors_allowed_origin.

    GET /ping answers 200 once the models are loaded. Exit status 2: the arguments or a model directory are invalid, and
    the reason is on stderr. Exit status 1: an engine crashed more often than retry_threshold allows, or a model's
    source is unreachable.
    """
    from lmi_handlers.cli.starting import begin_front, start_event_loop, starting

    level, directories = log_level.value if log_level else None, tuple(models or ())
    given = (*(options or ()), *(() if ray is None else (f"ray_address={ray}",)))
    is_front = FRONT_VARIABLE in os.environ
    if is_front:
        level = begin_front()
    with starting(level, log_format.value, access_log=access_log), _one_line_errors():
        # Before the imports, so that an engine starts alongside them; engines of front ends belong to their parent.
        runner = start_event_loop(() if is_front else directories, given, forks_only=servers > 1)
        if servers > 1 and not is_front:
            from lmi_handlers.cli.fronts import run_fronts

            run_fronts(runner, servers, level or "info", drain_seconds)
            return
        from lmi_handlers.cli.serving import report_ready, run
        from lmi_handlers.container.search import Arguments

        arguments = Arguments(
            models=directories,
            items=tuple(items or ()),
            model_store=model_store,
            config_file=config_file,
            host=host,
            port=port,
            options=given,
            grpc_port=grpc_port,
            pages=pages,
            tgi_environment=tgi_environment,
            plugins_directory=plugins_directory,
        )
        run(runner, arguments, drain_seconds, strict=strict, welcome=partial(report_ready, level=level or "info"))


@app.command()
def demo(
    port: option.Port = None,
    opens: Annotated[
        bool | None,
        typer.Option("--open/--no-open", help="Open the chat page in a browser. Default: if there is a display."),
    ] = None,
) -> None:
    """Serve a tiny model that comes with this package: print one answer, then serve a chat page until Ctrl-C."""
    from lmi_handlers.cli.starting import start_event_loop, starting

    model = Path(__file__).with_name("hello")
    with starting("warning", access_log=False), _one_line_errors():
        runner = start_event_loop((str(model),), ())
        from lmi_handlers.cli.demo_command import run_demo

        run_demo(runner, model, port, opens=opens)


@app.command()
def check(
    models: option.Models = None,
    items: option.Items = None,
    model_store: option.ModelStore = None,
    config_file: option.ConfigFile = None,
    options: option.Options = None,
    plugins_directory: option.PluginsDirectory = None,
    strict: option.Strict = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead of tables.")] = False,
    every_option: Annotated[bool, typer.Option("--all", help="Also show options with default values.")] = False,
    tgi_environment: option.TgiEnvironment = False,
    workflows: option.Workflows = None,
    install: option.Install = None,
    drain_seconds: option.CheckedDrainSeconds = 30,
    log_format: option.CheckedLogFormat = option.LogFormat.TEXT,
    access_log: option.CheckedAccessLog = True,
) -> None:
    """Print what `lmi serve` would do with the same arguments, without starting anything.

    Shows the models, the server's address, and settings without effect, with the reasons. For each model, shows the
    backend, the output formatters, and the value and source of each option that is set.

    Exit status 2: a model cannot be served. Every problem that can be found without loading weights is on stderr, one
    per line: invalid options, missing or damaged files, weights that do not match config.json, too little memory.
    """
    _collect_no_garbage()
    from lmi_handlers.cli.check_command import run_check
    from lmi_handlers.container.search import Arguments

    arguments = Arguments(
        models=tuple(models or ()),
        items=tuple(items or ()),
        model_store=model_store,
        config_file=config_file,
        options=tuple(options or ()),
        tgi_environment=tgi_environment,
        plugins_directory=plugins_directory,
    )
    with _one_line_errors():
        run_check(arguments, strict=strict, as_json=as_json, every_option=every_option)


@app.command("try")
def try_(
    directory: option.Directory,
    prompt: Annotated[str | None, typer.Option(help="The prompt to send.")] = None,
    body: Annotated[Path | None, typer.Option(help="A file with the request body, instead of a prompt.")] = None,
    stream: Annotated[bool, typer.Option("--stream", help="Ask for a stream.")] = False,
    route: Annotated[str, typer.Option(help="The path of the request, with its query.")] = "/invocations",
    method: Annotated[
        str,
        typer.Option("-X", "--request", metavar="METHOD", help="The HTTP method; GET sends no body."),
    ] = "POST",
    say: Annotated[str | None, typer.Option(help="The answer of the scripted backend.")] = None,
    real: Annotated[bool, typer.Option("--real", help="Use the model itself, not the scripted backend.")] = False,
    watch: Annotated[bool, typer.Option("--watch", help="Repeat the request each time a file is saved.")] = False,
    options: option.Options = None,
    plugins_directory: option.PluginsDirectory = None,
) -> None:
    """Send one request to the model directory DIR and print each chunk of the answer with its time.

    Runs DIR's own formatters and its handle function; the scripted backend answers in place of the model. Prints the
    warnings of lmi check to stderr.

    \b
    lmi try DIR --stream                        stream the answer to a prompt
    lmi try DIR -X GET --route /v1/models       another method and route
    lmi try DIR --real --prompt "Who are you?"  the model itself
    """
    from lmi_core.remote.fetching import local_directory
    from lmi_handlers.cli.try_command import Trial, run_trial
    from lmi_handlers.cli.try_command import watch as watch_trial

    with _one_line_errors():
        given = (prompt, body, stream, route, say, real, method.upper(), tuple(options or ()))
        trial = Trial(local_directory(directory), plugins_directory, *given)
        if watch:
            watch_trial(trial)
        if not run_trial(trial):
            raise typer.Exit(1)


@app.command()
def generate(
    target: option.Target,
    prompt: Annotated[
        str | None,
        typer.Argument(help="The text to continue. Without it, or with -, the text is read from standard input."),
    ] = None,
    as_chat: Annotated[bool, typer.Option("--chat", help="Send the text as a chat message.")] = False,
    max_tokens: option.MaxTokens = None,
    temperature: option.Temperature = None,
    model: option.ModelName = None,
    options: option.Options = None,
    plugins_directory: option.PluginsDirectory = None,
    strict: option.Strict = False,
    api_key_variable: option.ApiKeyVariable = None,
) -> None:
    """Stream the text that a model generates from a prompt; tokens per second go to stderr."""
    import asyncio

    from lmi_handlers.cli import generate_command
    from lmi_handlers.cli.connection import Connection

    parameters = _without_none(max_tokens=max_tokens, temperature=temperature, model=model)
    with _one_line_errors():
        connection = Connection(target, tuple(options or ()), plugins_directory, strict, api_key_variable)
        if not asyncio.run(generate_command.generate(connection, prompt, parameters, as_chat=as_chat)):
            raise typer.Exit(1)


@app.command()
def chat(
    target: option.Target,
    system: Annotated[str, typer.Option(help="The system prompt.")] = "",
    max_tokens: option.MaxTokens = None,
    temperature: option.Temperature = None,
    model: option.ModelName = None,
    options: option.Options = None,
    plugins_directory: option.PluginsDirectory = None,
    strict: option.Strict = False,
    api_key_variable: option.ApiKeyVariable = None,
) -> None:
    """Chat with a model in the terminal. Type /help for the commands and keys.

    Enter sends a message; Alt-Enter, or a backslash at the end of the line, starts a new line. Text pasted over several
    lines is one message. Answers are shown as Markdown. Ctrl-C stops an answer.

    Messages are kept for the arrow keys and Ctrl-R of later chats, in ~/.local/state/lmi/chat_history, which only you
    can read; XDG_STATE_HOME replaces ~/.local/state. If standard input is not a terminal, each of its lines is a
    message; if standard output is not one, answers are plain text.
    """
    from lmi_handlers.cli.chat_command import Conversation, run_chat
    from lmi_handlers.cli.connection import Connection

    fields = _without_none(max_tokens=max_tokens, temperature=temperature, model=model)
    with _one_line_errors():
        connection = Connection(target, tuple(options or ()), plugins_directory, strict, api_key_variable)
        run_chat(connection, Conversation(system, fields=fields))


def _without_none(**values: object) -> dict[str, object]:
    return {name: value for name, value in values.items() if value is not None}


@app.command()
def new(
    kind: Annotated[option.NewKind, typer.Argument(help="The kind of plugin to write.")],
    name: Annotated[str, typer.Argument(help="The name of the plugin and of its folder.")],
    package: Annotated[
        bool,
        typer.Option("--package", help="Write a Python package to build and install, not files for --plugins-dir."),
    ] = False,
) -> None:
    """Write a working formatter, handler (an API dialect) or backend, and its test, to the folder NAME."""
    from lmi_handlers.cli.new_command import write_new

    with _one_line_errors():
        print(write_new(kind.value, name, Path(), package=package))


@app.command()
def plugins(plugins_directory: option.PluginsDirectory = None) -> None:
    """List the backends, output formatters and handlers, and the origin of each."""
    _collect_no_garbage()
    from lmi_handlers.cli.report import print_plugins

    with _one_line_errors():
        print_plugins(plugins_directory)


@app.command()
def options(plugins_directory: option.PluginsDirectory = None) -> None:
    """Print every option of serving.properties, with its default and a description."""
    _collect_no_garbage()
    from lmi_handlers.cli.report import print_options

    with _one_line_errors():
        print_options(plugins_directory)
