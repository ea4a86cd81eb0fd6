"""The text of docs/reference/errors.md, from the errors that the handlers write."""

import inspect
from collections.abc import Iterator

import orjson

from lmi_core import errors
from lmi_core.calls.answer import Answer
from lmi_core.errors import BackendGivenUp, ConfigurationError, InvalidParameter, LmiError, OutOfMemory
from lmi_core.handler import Handler
from lmi_core.plugins.loading import Plugins

MESSAGE = "`top_k` must be a valid integer. Given: 'many'"
INTRODUCTION = """# Errors

Each API has its own status codes and error format. The message is the same in every API: it names the field, the
bound, the value given, and the remedy.

- Once an answer has begun, its status cannot change. A stream then ends with an error in the format of the API, as its
  last line or event.
- The response header `x-request-id` identifies the request in the log.
- When the queue is full or an engine restarts, the response has a `Retry-After` header.
- A status of 500 with the kind `internal` is a bug in the server: please report it with the traceback in the log.

## Statuses

An empty cell means that the API does not have the error. In the dialects of LMI, OpenAI and Ollama,
`throttle_error_http_code` sets the status of a full queue.
"""
SHAPES = """## Formats

The same error in each API: a parameter with an invalid value.
"""


# Errors that only the named APIs have.
ONLY = {
    "adapter_exists": ("adapters", "vllm_adapters"),
    "invalid_adapter": ("adapters", "vllm_adapters"),
    "model_exists": ("management",),
    "invalid_model": ("management",),
    "response_not_found": ("openai_responses",),
}


def document(plugins: Plugins) -> str:
    """Return the page: the status of each kind of error in each API, and the form of an error in each."""
    handlers = sorted((handler() for handler in plugins.handlers), key=lambda handler: handler.name)
    return "\n".join([INTRODUCTION, *_statuses(handlers), "", SHAPES, *_forms(handlers)])


def kinds() -> list[type[LmiError]]:
    """Return the errors that a request can be answered with, in the order in which they are declared."""
    family = [each for each in vars(errors).values() if inspect.isclass(each) and issubclass(each, LmiError)]
    stopping = (ConfigurationError, BackendGivenUp)
    own = [each for each in family if "kind" in vars(each)]
    return [each for each in own if not issubclass(each, stopping) or each is OutOfMemory]  # of an idle model


def _statuses(handlers: list[Handler]) -> Iterator[str]:
    yield f"| kind | meaning | {' | '.join(handler.name for handler in handlers)} |"
    yield f"|{'---|' * (len(handlers) + 2)}"
    for kind in kinds():
        statuses = (_status(handler, kind) for handler in handlers)
        yield f"| `{kind.kind}` | {_meaning(kind)} | {' | '.join(statuses)} |"


def _status(handler: Handler, kind: type[LmiError]) -> str:
    names = ONLY.get(kind.kind, (handler.name,))
    return str(_answer(handler, kind).status) if handler.name in names else ""


def _meaning(kind: type[LmiError]) -> str:
    if kind is LmiError:
        return "An unexpected error in the server."
    return (inspect.getdoc(kind) or "").partition("\n")[0]


def _forms(handlers: list[Handler]) -> Iterator[str]:
    for handler in handlers:
        answer = _answer(handler, InvalidParameter)
        body = orjson.dumps(orjson.loads(answer.body)).decode()
        yield f"### {handler.name}\n\nStatus {answer.status}:\n\n```json\n{body}\n```\n"


def _answer(handler: Handler, kind: type[LmiError]) -> Answer:
    error = kind.__new__(kind)
    LmiError.__init__(error, MESSAGE)
    for name, parameter in inspect.signature(kind).parameters.items():
        if name != "message":
            setattr(error, name, None if parameter.default is None else "")
    return handler.error(error, None, None)
