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

Every API has its own statuses and its own form of an error. What went wrong has the same message everywhere: it
names the field, the bound, the value given, and what to do.

- An answer that has begun cannot change its status. A stream then ends with an error in the form of the API, as its
  last line or event.
- The response header `x-request-id` names the request in the log.
- `Retry-After` comes with the answer of a full queue, and of an engine that restarts.
- A status of 500 with the kind `internal` is a fault of the server: please report it with the log's traceback.

## Statuses

An empty cell is an error that the API does not have. The status of a full queue is that of `throttle_error_http_code`
in the dialects of LMI, OpenAI and Ollama.
"""
SHAPES = """## Forms

The same error in each API: a parameter with a wrong value.
"""


# Errors that only the named APIs have.
ONLY = {
    "adapter_exists": ("adapters",),
    "invalid_adapter": ("adapters",),
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
    return [each for each in family if not issubclass(each, stopping) or each is OutOfMemory]  # of an idle model


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
        return "The server has a fault."
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
