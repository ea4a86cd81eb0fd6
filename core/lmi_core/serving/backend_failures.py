"""Failures of a backend's own code, told as sentences: to the client what went wrong, to the log where."""

import logging
from collections.abc import Mapping, Sequence
from typing import Any

from lmi_core.backend_checks import given, step_fault
from lmi_core.errors import (
    BackendUnhealthy,
    ConfigurationError,
    FormatterFailed,
    GenerationFailed,
    LmiError,
    OutOfMemory,
)
from lmi_core.formatter import OutputFormatter
from lmi_core.generation.output import GenerationStep
from lmi_core.generation.request import ValidRequest
from lmi_core.generation.tensors import Tensor
from lmi_core.host.out_of_memory import is_out_of_memory
from lmi_core.script.tracebacks import place_in
from lmi_core.serving_runtime import ServingRuntime

logger = logging.getLogger(__name__)

NO_STEP = GenerationStep([])


def owner(runtime: ServingRuntime[Any]) -> str:
    """Return how messages name a backend: by its name and its class."""
    return f"the {runtime.name} backend ({type(runtime).__name__})"


async def start_runtime(runtime: ServingRuntime[Any], model: str) -> None:
    """Start a model's runtime. Raise ConfigurationError also where its author's code raises or leaves something out.

    Raise OutOfMemory where that was for want of memory.
    """
    try:
        await runtime.start()
        await runtime.finish_start()
    except (LmiError, TimeoutError):
        raise
    except Exception as error:
        logger.debug("model %s: %s did not start", model, owner(runtime), exc_info=error)
        raise (OutOfMemory if is_out_of_memory(error) else ConfigurationError)(
            f"model {model}: {owner(runtime)} did not start: {type(error).__name__}: {error}"
            f"{place_in(error, type(runtime))}"
        ) from error


async def check_health(runtime: ServingRuntime[Any]) -> None:
    """Raise BackendUnhealthy unless the runtime can take requests, whatever its author's code raises."""
    try:
        await runtime.health()
    except LmiError:
        raise
    except Exception as error:
        logger.error("%s raised in `health`", owner(runtime), exc_info=error)
        raise BackendUnhealthy(f"{owner(runtime)} raised {type(error).__name__}: {error}") from error


def failure(runtime: ServingRuntime[Any], error: Exception, request_id: str, latest: object = NO_STEP) -> LmiError:
    """Return what the client gets for an exception in a backend's stream; log it unless `latest` explains it."""
    if isinstance(error, (AttributeError, TypeError)) and (fault := step_fault(latest)):
        return GenerationFailed(f"{owner(runtime)}: {fault}")
    logger.error("request %s: %s raised", request_id, owner(runtime), exc_info=error)
    return GenerationFailed(f"{owner(runtime)} raised {type(error).__name__}: {error}")


def writing_failure(runtime: ServingRuntime[Any], error: BaseException, step: GenerationStep) -> LmiError:
    """Return what the client gets where a formatter raised: the backend's fault if its step is not a GenerationStep."""
    if fault := step_fault(step):
        return GenerationFailed(f"{owner(runtime)}: {fault}")
    return FormatterFailed(f"the output formatter raised {type(error).__name__}: {error}")


def written(formatter: OutputFormatter, data: object) -> bytes | list[bytes]:
    """Return what a formatter returned. Raise FormatterFailed where that is neither bytes nor a list of them."""
    if isinstance(data, bytes):
        return data
    wrong = data
    if isinstance(data, list):
        for wrong in data:
            if not isinstance(wrong, bytes):
                break
        else:
            return data
    raise FormatterFailed(
        f"the output formatter {type(formatter).__name__} must return bytes, as text.encode() does, or a list of them. "
        f"Given: {given(wrong)}"
    )


class StepChecks:
    """The checks of a call's steps that cost nothing per token: of the first one, and at each sequence's end."""

    def __init__(self, runtime: ServingRuntime[Any], requests: Sequence[ValidRequest]) -> None:
        self.unfinished = {
            (place, i) for place, request in enumerate(requests) for i in range(request.parameters.num_sequences)
        }
        self._owner = owner(runtime)

    def begin(self, step: object) -> bool:
        """Return True. Raise GenerationFailed where the first step is not one."""
        if fault := step_fault(step):
            raise GenerationFailed(f"{self._owner}: {fault}")
        return True

    def end(self, step: GenerationStep) -> None:
        """Note that a sequence has ended. Raise GenerationFailed where its last step is not one."""
        self.begin(step)
        try:
            self.unfinished.remove((step.prompt_index, step.sequence_index))
        except KeyError:
            raise GenerationFailed(
                f"{self._owner}: `generate` must yield one finish reason for each sequence that the request asks for. "
                f"Given: another, {step.finish_reason}, for the sequence {step.sequence_index}"
            ) from None

    def complete(self) -> None:
        """Raise GenerationFailed where a sequence has not ended."""
        if self.unfinished:
            _, index = min(self.unfinished)
            raise GenerationFailed(
                f"{self._owner}: `generate` must yield a finish reason with the last step of each sequence. "
                f"Given: none for the sequence {index}"
            )


class ResponseChecks:
    """The checks of what `infer` yields."""

    unit = "response"

    def __init__(self, runtime: ServingRuntime[Any]) -> None:
        self._owner = owner(runtime)

    def take(self, response: object) -> None:
        """Raise GenerationFailed where a response is not a mapping of tensors."""
        if not isinstance(response, Mapping) or not all(isinstance(tensor, Tensor) for tensor in response.values()):
            raise GenerationFailed(
                f"{self._owner}: `infer` must yield tensors by name, each a Tensor. Given: {given(response)}"
            )

    def complete(self) -> None:
        """Accept any number of responses."""


class VectorChecks:
    """The checks of what `embed` yields: one vector for each request."""

    unit = "vector"

    def __init__(self, runtime: ServingRuntime[Any], count: int) -> None:
        self._owner = owner(runtime)
        self._missing = set(range(count))

    def take(self, found: object) -> None:
        """Note that a vector is there. Raise GenerationFailed where it is not one of those still missing."""
        if not isinstance(found, tuple) or len(found) != 2 or not isinstance(found[1], bytes):
            raise GenerationFailed(
                f"{self._owner}: `embed` must yield pairs of a request's index and its vector, as bytes. "
                f"Given: {given(found)}"
            )
        if found[0] not in self._missing:
            raise GenerationFailed(
                f"{self._owner}: `embed` must yield one vector for each request. Given: another for the index "
                f"{found[0]}"
            )
        self._missing.discard(found[0])

    def complete(self) -> None:
        """Raise GenerationFailed where a request has no vector."""
        if self._missing:
            raise GenerationFailed(
                f"{self._owner}: `embed` must yield one vector for each request. Given: none for the index "
                f"{min(self._missing)}"
            )
