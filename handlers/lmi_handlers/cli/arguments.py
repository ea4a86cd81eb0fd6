"""The arguments and options shared by commands of `lmi`, and those of `lmi serve`."""

from copy import copy
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

DRAIN_TIMEOUT = "SERVING_DRAIN_TIMEOUT"
LOG_FORMAT = "SERVING_LOG_FORMAT"
ACCESS_LOG = "SERVING_ACCESS_LOG"


class LogLevel(StrEnum):
    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


class LogFormat(StrEnum):
    TEXT = "text"
    JSON = "json"


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
    ),
]
Models = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[NAME=]DIR",
        help="Model directories, optionally with names; a folder of several; s3:// URLs; or ids of models on "
        "the Hugging Face hub. Default: the models named in the environment or in config.properties, otherwise "
        "/opt/ml/model.",
    ),
]
Items = Annotated[
    list[str] | None,
    typer.Option(
        "-m",
        "--models",
        metavar="ITEM",
        help="Models in DJLServing's notation: [NAME[:VERSION[:ENGINE[:DEVICES]]]=]URL, separated by commas.",
    ),
]
ModelStore = Annotated[
    str | None,
    typer.Option("-s", "--model-store", metavar="DIR", help="A folder of model directories."),
]
ConfigFile = Annotated[
    Path | None,
    typer.Option(
        "-f",
        "--config-file",
        metavar="FILE",
        help="A config.properties file, as for DJLServing: API keys, TLS, limits and more. Default: the one "
        "in MODEL_SERVER_HOME.",
    ),
]
RayAddress = Annotated[
    str | None,
    typer.Option(
        "--ray",
        metavar="ADDRESS",
        help="Run the engines on a Ray cluster: auto, local, HOST:PORT or ray://HOST:PORT.",
    ),
]
Servers = Annotated[
    int,
    typer.Option(
        "--servers",
        min=1,
        metavar="N",
        help="Processes that read, tokenize and answer requests on the same port. They share the engines of the "
        "backends torch and trtllm, and divide those of vllm and lmi-dist. Linux only.",
    ),
]
Options = Annotated[
    list[str] | None,
    typer.Option(
        "-o",
        "--option",
        metavar="KEY=VALUE",
        help="Set a key of serving.properties for every model, over file and environment. Can be repeated.",
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
TgiEnvironment = Annotated[
    bool,
    typer.Option(
        "--tgi-environment",
        help="Also read the environment variables of text-generation-launcher, such as MODEL_ID, NUM_SHARD "
        "and PORT, and answer as its container does.",
    ),
]
Host = Annotated[
    str | None,
    typer.Option(
        help="The address to listen on; 0.0.0.0 means all interfaces. Default: SERVING_INFERENCE_ADDRESS, "
        "0.0.0.0 in a SageMaker container, otherwise 127.0.0.1.",
    ),
]
Port = Annotated[
    int | None,
    typer.Option(
        min=0,
        max=65535,
        help="The port to listen on; 0 selects a free one. Default: SAGEMAKER_BIND_TO_PORT, the port in "
        "SERVING_INFERENCE_ADDRESS, otherwise 8080.",
    ),
]
GrpcPort = Annotated[
    int | None,
    typer.Option(
        "--grpc-port",
        min=0,
        max=65535,
        help="Also serve KServe's protocol over gRPC, on this port of the same host; 0 selects a free one. "
        "Default: SERVING_GRPC_PORT, otherwise no gRPC. Needs pip install 'lmi-handlers[grpc]'.",
    ),
]
Pages = Annotated[
    bool | None,
    typer.Option(
        "--pages/--no-pages",
        help="Serve a chat page for browsers at /. Default: SERVING_PAGES, otherwise on.",
    ),
]
_DRAIN_SECONDS = typer.Option(
    "--drain-seconds",
    min=0,
    envvar=DRAIN_TIMEOUT,
    help="Time for requests to finish after SIGTERM, SIGHUP or Ctrl-C, in seconds. Default: SERVING_DRAIN_TIMEOUT, "
    "otherwise 30.",
    show_default=False,
)
DrainSeconds = Annotated[float, _DRAIN_SECONDS]
LogLevelOption = Annotated[
    LogLevel | None,
    typer.Option(
        help="The lowest level of messages to log. Default: info; on a terminal, warning until the models are loaded.",
    ),
]
_LOG_FORMAT = typer.Option(
    "--log-format",
    envvar=LOG_FORMAT,
    help="The log format: text for people, json for collectors. Default: SERVING_LOG_FORMAT, otherwise text.",
    show_default=False,
)
LogFormatOption = Annotated[LogFormat, _LOG_FORMAT]
_ACCESS_LOG = typer.Option(
    "--access-log/--no-access-log",
    envvar=ACCESS_LOG,
    help="Log each request when it ends. Default: SERVING_ACCESS_LOG, otherwise on.",
    show_default=False,
)
AccessLog = Annotated[bool, _ACCESS_LOG]


def _hidden(option: Any) -> Any:
    option = copy(option)
    option.hidden = True
    return option


# For `lmi check`, which refuses the same values of the variables as `lmi serve`
CheckedDrainSeconds = Annotated[float, _hidden(_DRAIN_SECONDS)]
CheckedLogFormat = Annotated[LogFormat, _hidden(_LOG_FORMAT)]
CheckedAccessLog = Annotated[bool, _hidden(_ACCESS_LOG)]
Target = Annotated[
    str,
    typer.Argument(
        metavar="DIR|ORG/NAME|URL",
        help="A model directory, a model of the Hugging Face hub, or the address of a server of OpenAI's API.",
    ),
]
ApiKeyVariable = Annotated[
    str | None,
    typer.Option(
        "--api-key-env",
        metavar="NAME",
        help="The environment variable that holds the API key of the server at URL. Default: LMI_API_KEY, otherwise"
        " OPENAI_API_KEY.",
    ),
]
MaxTokens = Annotated[
    int | None,
    typer.Option(
        min=1,
        help="The maximum number of tokens to generate. Default: 16 for a text, as many as fit for a chat.",
    ),
]
Temperature = Annotated[float | None, typer.Option(min=0, help="Sampling temperature; 0 means greedy decoding.")]
ModelName = Annotated[str | None, typer.Option("--model", help="The model or adapter to use, if there are several.")]
