"""What the calls of a model yield, from their turn to their end: steps, or answers that are useless in parts."""

from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from typing import Any, Protocol, TypeVar

from lmi_core.backend import Backend
from lmi_core.engines.merge import generate_all
from lmi_core.errors import LmiError, RequestAborted
from lmi_core.generation import GenerationStep
from lmi_core.metrics.request_record import RequestRecord
from lmi_core.metrics.request_statistics import RequestStatistics
from lmi_core.request import ValidRequest
from lmi_core.serving.backend_failures import NO_STEP, ResponseChecks, StepChecks, VectorChecks, failure
from lmi_core.serving.limits.time_limits import TimeLimits
from lmi_core.serving.limits.turns import Turns
from lmi_core.serving.running import RunningCall, RunningCalls

T = TypeVar("T")


class Runner(Protocol):
    """What a call needs of its model."""

    statistics: RequestStatistics
    running: RunningCalls
    time_limits: TimeLimits
    turns: Turns

    @property
    def backend(self) -> Backend[Any]: ...

    def in_batch(
        self, call: RunningCall, begin: Callable[[], AsyncGenerator[T, None]], client: str
    ) -> AsyncGenerator[T, None]: ...


async def generated(
    model: Runner, requests: Sequence[ValidRequest], request_id: str, record: RequestRecord, client: str
) -> AsyncGenerator[GenerationStep, None]:
    """Yield the steps of a call's prompts; of each sequence that others end, the last one says so."""
    checks, checked, step = StepChecks(model.backend, requests), False, NO_STEP
    record.submit(requests)
    begun = False
    measured = model.statistics.measure(len(requests))
    with (
        measured as outcome,
        model.running.call(request_id, model.time_limits, requests=requests, client=client) as call,
        model.turns.of(client, call.num_sequences, call.is_unread) as turn,
    ):
        source = model.in_batch(call, lambda: generate_all(model.backend, requests), client)
        try:
            async with aclosing(call.until_aborted(source, turn)) as steps:
                async for step in steps:
                    checked = checked or checks.begin(step)
                    begun = begun or record.begin(step)
                    if step.finish_reason is not None:
                        checks.end(step)
                        record.end(step)
                    yield step
        except LmiError:
            raise
        except Exception as error:
            raise failure(model.backend, error, request_id, step) from error
        if not call.aborted:
            checks.complete()
        outcome.succeeds = not call.aborted
    if call.aborted:
        for place, index in sorted(checks.unfinished):
            step = GenerationStep([], "abort", index, prompt_index=place)
            record.end(step)
            yield step


async def all_or_aborted(
    model: Runner,
    request_id: str,
    client: str,
    begin: Callable[[], AsyncGenerator[T, None]],
    checks: ResponseChecks | VectorChecks,
) -> AsyncGenerator[T, None]:
    """Yield what the answer of a call is made of. Raise RequestAborted where others end the call."""
    measured = model.statistics.measure(1)
    with (
        measured as outcome,
        model.running.call(request_id, model.time_limits, checks.unit, client=client) as call,
        model.turns.of(client, 1, call.is_unread) as turn,
    ):
        try:
            async with aclosing(call.until_aborted(model.in_batch(call, begin, client), turn)) as items:
                async for item in items:
                    checks.take(item)
                    yield item
        except LmiError:
            raise
        except Exception as error:
            raise failure(model.backend, error, request_id) from error
        if not call.aborted:
            checks.complete()
        outcome.succeeds = not call.aborted
    if call.aborted:
        raise RequestAborted("the request was aborted")
