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
        help="A model directory (serving.properties, the model's own files, or both), a folder of several, or the "
        "s3:// URL of either.",
        show_default=False,
    ),
]
Models = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[NAME=]DIR",
        help="Model directories, each with or without a name, or a folder of several; or their s3:// URLs, or ids of"
        " models of the Hugging Face hub. Without any, those that the environment or config.properties name, or"
        " /opt/ml/model.",
        show_default=False,
    ),
]
Items = Annotated[
    list[str] | None,
    typer.Option(
        "-m",
        "--models",
        metavar="ITEM",
        help="Models in DJLServing's notation: [NAME[:VERSION[:ENGINE[:DEVICES]]]=]URL, separated by commas.",
        show_default=False,
    ),
]
ModelStore = Annotated[
    str | None,
    typer.Option("-s", "--model-store", metavar="DIR", help="A folder of model directories.", show_default=False),
]
ConfigFile = Annotated[
    Path | None,
    typer.Option(
        "-f",
        "--config-file",
        metavar="FILE",
        help="A config.properties of DJLServing. Default: the one in MODEL_SERVER_HOME.",
        show_default=False,
    ),
]


Options = Annotated[
    list[str] | None,
    typer.Option(
        "-o",
        "--option",
        metavar="KEY=VALUE",
        help="A key of serving.properties for every model, over file and environment. May be given several times.",
        show_default=False,
    ),
]


def _refuse_workflows(given: list[str] | None) -> None:
    if given:
        raise typer.BadParameter("workflows are not supported: name their models with -m")


def _refuse_install(given: list[str] | None) -> None:
    if given:
        raise typer.BadParameter("it installs engines for Java; install this server's dependencies with pip")


Workflows = Annotated[list[str] | None, typer.Option("-w", "--workflows", hidden=True, callback=_refuse_workflows)]
Install = Annotated[list[str] | None, typer.Option("-i", "--install", hidden=True, callback=_refuse_install)]
PluginsDirectory = Annotated[
    Path | None,
    typer.Option(
        "--plugins-dir",
        metavar="DIR",
        help="A folder of plugins: Python files that add backends, formatters or handlers.",
    ),
]


Strict = Annotated[bool, typer.Option("--strict", help="Treat every warning about the model directory as an error.")]


@contextmanager
def _one_line_errors() -> Iterator[None]:
    """Turn configuration errors and crashed engines into one line on stderr and an exit status."""
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
    models: Models = None,
    items: Items = None,
    model_store: ModelStore = None,
    config_file: ConfigFile = None,
    options: Options = None,
    host: Annotated[
        str | None,
        typer.Option(
            help="The address to listen on; 0.0.0.0 means all interfaces. Default: SERVING_INFERENCE_ADDRESS, "
            "0.0.0.0 in a SageMaker container, otherwise 127.0.0.1.",
            show_default=False,
        ),
    ] = None,
    port: Annotated[
        int | None,
        typer.Option(
            min=0,
            max=65535,
            help="The port to listen on; 0 selects a free one. Default: SAGEMAKER_BIND_TO_PORT, the port in "
            "SERVING_INFERENCE_ADDRESS, otherwise 8080.",
            show_default=False,
        ),
    ] = None,
    grpc_port: Annotated[
        int | None,
        typer.Option(
            "--grpc-port",
            min=0,
            max=65535,
            help="Serve KServe's protocol over gRPC too, on this port of the same host; 0 takes a free one. Default:"
            " SERVING_GRPC_PORT, otherwise there is no gRPC. Needs pip install 'lmi-handlers[grpc]'.",
            show_default=False,
        ),
    ] = None,
    plugins_directory: PluginsDirectory = None,
    drain_seconds: Annotated[
        float,
        typer.Option("--drain-seconds", min=0, help="Time for requests to finish after SIGTERM or Ctrl-C, in seconds."),
    ] = 30,
    log_level: Annotated[LogLevel, typer.Option(help="The lowest level of messages to log.")] = LogLevel.INFO,
    strict: Strict = False,
    workflows: Workflows = None,
    install: Install = None,
) -> None:
    """Serve model directories over HTTP, and if asked gRPC, until Ctrl-C.

    \b
    lmi serve DIR                   a model directory, or a folder of several
    lmi serve ORG/NAME              a model of the Hugging Face hub
    lmi serve NAME=DIR NAME=DIR     several, by name
    lmi serve -m NAME:v1=file:/DIR  in DJLServing's notation
    lmi serve                       as in its container: HF_MODEL_ID,
                                    SERVING_LOAD_MODELS, /opt/ml/model, ...

    GET /ping answers 200 once the models are loaded. Exit status 2: the arguments or a model directory are wrong, as a
    line on stderr says. Exit status 1: an engine crashed more often than retry_threshold allows.
    """
    from lmi_handlers.cli.serving import run
    from lmi_handlers.container.search import Arguments

    given = tuple(options or ())
    arguments = Arguments(
        tuple(models or ()), tuple(items or ()), model_store, config_file, host, port, given, grpc_port
    )
    with _one_line_errors():
        run(arguments, plugins_directory, drain_seconds, log_level.value, strict=strict)


@app.command()
def check(
    models: Models = None,
    items: Items = None,
    model_store: ModelStore = None,
    config_file: ConfigFile = None,
    options: Options = None,
    plugins_directory: PluginsDirectory = None,
    strict: Strict = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead of tables.")] = False,
    workflows: Workflows = None,
    install: Install = None,
) -> None:
    """Read what `lmi serve` would with the same arguments, start nothing, and print what it would do.

    Shows the models and where the server would listen, what has no effect and why, and for each model the backend, the
    output formatters, and every option: its value and where it came from.

    Exit status 2: models cannot be served. All reasons that files tell without loading weights are on stderr, one a
    line: wrong options, missing or damaged files, weights that are not those of config.json, too little memory.
    """
    from lmi_handlers.cli.check_command import run_check
    from lmi_handlers.container.search import Arguments

    given = tuple(options or ())
    arguments = Arguments(tuple(models or ()), tuple(items or ()), model_store, config_file, options=given)
    with _one_line_errors():
        run_check(arguments, plugins_directory, os.environ, strict=strict, as_json=as_json)


@app.command("try")
def try_(
    directory: Directory,
    prompt: Annotated[str | None, typer.Option(help="The prompt to send.", show_default=False)] = None,
    body: Annotated[Path | None, typer.Option(help="A file with the request body to send instead of a prompt.")] = None,
    stream: Annotated[bool, typer.Option("--stream", help="Ask for a stream.")] = False,
    route: Annotated[str, typer.Option(help="The path to POST to.")] = "/invocations",
    say: Annotated[str | None, typer.Option(help="The answer of the scripted backend.", show_default=False)] = None,
    real: Annotated[bool, typer.Option("--real", help="Use the model itself, not the scripted backend.")] = False,
    watch: Annotated[bool, typer.Option("--watch", help="Repeat the request each time a file is saved.")] = False,
    plugins_directory: PluginsDirectory = None,
) -> None:
    """Send one request through the model directory DIR and print each chunk of the answer with its time.

    Runs DIR's own formatters and its handle function. In place of the model, the scripted backend answers.
    """
    from lmi_core.remote.fetching import local_directory
    from lmi_handlers.cli.try_command import Trial, run_trial
    from lmi_handlers.cli.try_command import watch as watch_trial

    with _one_line_errors():
        trial = Trial(local_directory(directory), plugins_directory, prompt, body, stream, route, say, real)
        if watch:
            watch_trial(trial)
        if not run_trial(trial):
            raise typer.Exit(1)


Target = Annotated[
    str,
    typer.Argument(
        metavar="DIR|ORG/NAME|URL",
        help="A model directory, a model of the Hugging Face hub, or the address of a server of OpenAI's API.",
        show_default=False,
    ),
]
MaxTokens = Annotated[
    int | None, typer.Option(min=1, help="The maximum number of tokens of an answer.", show_default=False)
]
Temperature = Annotated[float | None, typer.Option(min=0, help="0 takes the most likely token.", show_default=False)]
ModelName = Annotated[
    str | None, typer.Option("--model", help="The model or adapter, where there are several.", show_default=False)
]


@app.command()
def generate(
    target: Target,
    prompt: Annotated[str, typer.Argument(help="The text to continue; - reads it from standard input.")],
    as_chat: Annotated[bool, typer.Option("--chat", help="Answer the text as a message of a chat.")] = False,
    max_tokens: MaxTokens = None,
    temperature: Temperature = None,
    model: ModelName = None,
    options: Options = None,
    plugins_directory: PluginsDirectory = None,
) -> None:
    """Print the text that a model generates from a prompt, as it comes; tokens per second go to stderr."""
    from lmi_handlers.cli.generate_command import Prompt, run_generate

    parameters = _given(max_tokens=max_tokens, temperature=temperature, model=model)
    with _one_line_errors():
        if not run_generate(Prompt(target, prompt, parameters, tuple(options or ()), plugins_directory, as_chat)):
            raise typer.Exit(1)


@app.command()
def chat(
    target: Target,
    system: Annotated[str, typer.Option(help="What the model is told first.", show_default=False)] = "",
    max_tokens: MaxTokens = None,
    temperature: Temperature = None,
    model: ModelName = None,
    options: Options = None,
    plugins_directory: PluginsDirectory = None,
) -> None:
    """Chat with a model in the terminal. /help there lists what one can do."""
    from lmi_handlers.cli.chat_command import Conversation, run_chat

    fields = _given(max_tokens=max_tokens, temperature=temperature, model=model)
    with _one_line_errors():
        run_chat(target, Conversation(system, fields=fields), tuple(options or ()), plugins_directory)


def _given(**values: object) -> dict[str, object]:
    return {name: value for name, value in values.items() if value is not None}


@app.command()
def new(
    kind: Annotated[NewKind, typer.Argument(help="The kind of plugin to write.")],
    name: Annotated[str, typer.Argument(help="The name of the plugin and of its folder.")],
) -> None:
    """Write a formatter, a handler (an API dialect) or a backend that works, and its test, into the folder NAME."""
    from lmi_handlers.cli.new_command import write_new

    with _one_line_errors():
        print(write_new(kind.value, name, Path()))


@app.command()
def plugins(plugins_directory: PluginsDirectory = None) -> None:
    """List the backends, output formatters and handlers, and where each comes from."""
    from lmi_handlers.cli.report import print_plugins

    with _one_line_errors():
        print_plugins(plugins_directory)


@app.command()
def options(
    markdown: Annotated[bool, typer.Option("--markdown", help="Print the Markdown of docs/options.md.")] = False,
    djl: Annotated[bool, typer.Option("--djl", help="Print the Markdown of docs/coming_from_djl.md.")] = False,
    plugins_directory: PluginsDirectory = None,
) -> None:
    """Print every option that serving.properties can hold, with its default and its meaning."""
    from lmi_handlers.cli.report import print_coming_from_djl, print_options

    with _one_line_errors():
        if djl:
            print_coming_from_djl(plugins_directory)
            return
        print_options(markdown, plugins_directory)


def main() -> None:
    app()


if __name__ == "__main__":
    main()
