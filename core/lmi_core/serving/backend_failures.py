"""Failures of a backend's own code: a sentence for the client, and details for the log."""

import logging
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

from lmi_core.embedding_backend import Vector
from lmi_core.errors import (
    BackendUnhealthy,
    ConfigurationError,
    FormatterFailed,
    GenerationFailed,
    LmiError,
    OutOfMemory,
)
from lmi_core.formatter import OutputFormatter
from lmi_core.host.out_of_memory import is_out_of_memory
from lmi_core.script.tracebacks import place_in
from lmi_core.serving_runtime import ServingRuntime

logger = logging.getLogger(__name__)


def owner(runtime: ServingRuntime[Any]) -> str:
    """Return the name of a backend in messages: its name and its class."""
    return f"the {runtime.name} backend ({type(runtime).__name__})"


async def start_runtime(runtime: ServingRuntime[Any], model: str) -> None:
    """Start a model's runtime.

    Raise ConfigurationError if it cannot start, even if its author's code is incomplete or raises another exception.
    Raise OutOfMemory if memory ran out.
    """
    try:
        await runtime.start()
        await runtime.finish_start()
    except (LmiError, TimeoutError):
        raise
    except Exception as error:
        logger.debug("%s did not start", owner(runtime), exc_info=error)
        raise (OutOfMemory if is_out_of_memory(error) else ConfigurationError)(
            f"model {model}: {owner(runtime)} did not start: {type(error).__name__}: {error}"
            f"{place_in(error, type(runtime).__module__)}"
        ) from error


async def check_health(runtime: ServingRuntime[Any]) -> None:
    """Raise BackendUnhealthy unless the runtime can accept requests, or if its author's code raises."""
    try:
        await runtime.health()
    except LmiError:
        raise
    except Exception as error:
        logger.error("%s raised in `health`", owner(runtime), exc_info=error)
        raise BackendUnhealthy(f"{owner(runtime)} raised {type(error).__name__}: {error}") from error


def failure(runtime: ServingRuntime[Any], error: Exception, request_id: str) -> LmiError:
    """Log an exception in a backend's stream, and return the error for the client."""
    logger.error("request %s: %s raised", request_id, owner(runtime), exc_info=error)
    return GenerationFailed(f"{owner(runtime)} raised {type(error).__name__}: {error}")


def writing_failure(formatter: OutputFormatter, error: BaseException) -> LmiError:
    """Return the error for the client of a formatter that raised."""
    author = type(formatter)
    return FormatterFailed(
        f"the output formatter {author.__name__} raised {type(error).__name__}: {error}"
        f"{place_in(error, author.__module__)}"
    )


def unfinished_error(runtime: ServingRuntime[Any], index: int) -> LmiError:
    """Return the error for the client of a stream that has not ended one of its sequences."""
    return GenerationFailed(
        f"{owner(runtime)}: `generate` must yield a finish reason with the last step of each sequence. "
        f"Given: none for the sequence {index}"
    )


async def one_vector_each(
    runtime: ServingRuntime[Any], vectors: AsyncGenerator[Vector, None], count: int
) -> AsyncGenerator[Vector, None]:
    """Yield the vectors of a backend. Raise GenerationFailed unless there is one for each of `count` requests."""
    missing, wanted = set(range(count)), "`embed` must yield one vector for each request. Given"
    async with aclosing(vectors):
        async for index, vector in vectors:
            if index not in missing:
                raise GenerationFailed(f"{owner(runtime)}: {wanted}: a second one for the index {index}")
            missing.discard(index)
            yield index, vector
    if missing:
        raise GenerationFailed(f"{owner(runtime)}: {wanted}: none for the index {min(missing)}")
