"""The results of a model's calls, from their turn to their end."""

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import AbstractContextManager, aclosing, asynccontextmanager
from typing import Any, Protocol, TypeVar

from lmi_core.admission.running import RunningCall, RunningCalls
from lmi_core.admission.time_limits import TimeLimits
from lmi_core.admission.turns import RollingBatch, Turn, TurnQueue
from lmi_core.backend import Backend
from lmi_core.errors import LmiError, RequestAborted
from lmi_core.generation.merge import merge
from lmi_core.generation.output import GenerationStep
from lmi_core.generation.request import ValidRequest
from lmi_core.metrics.model_metrics import RequestStatistics
from lmi_core.metrics.request_record import Prompt, RequestRecord
from lmi_core.serving.backend_failures import failure, unfinished_error

T = TypeVar("T")


class Runner(Protocol):
    """The parts of a model that its calls need."""

    statistics: RequestStatistics
    running: RunningCalls
    time_limits: TimeLimits
    turns: TurnQueue

    @property
    def backend(self) -> Backend[Any]: ...


@asynccontextmanager
async def _running_call(
    model: Runner,
    request_id: str,
    record: RequestRecord,
    client: str,
    *,
    requests: Sequence[ValidRequest] = (),
    unit: str = "token",
    num_sequences: int = 1,
) -> AsyncIterator[tuple[RunningCall, Turn]]:
    """Measure a call and limit its times; the body waits for its turn.

    Raise LmiError for exceptions of the backend's own code.
    """
    record.wait()
    with (
        model.statistics.measure(max(1, len(requests))) as outcome,
        model.running.call(request_id, model.time_limits, unit, requests, client) as call,
        model.turns.of(client, num_sequences, call.is_unread) as turn,
    ):
        try:
            async with call.watched():
                yield call, turn
        except LmiError:
            raise
        except Exception as error:
            raise failure(model.backend, error, request_id) from error
        outcome.succeeds = not call.aborted


async def generate_steps(
    model: Runner, requests: Sequence[ValidRequest], request_id: str, record: RequestRecord, client: str
) -> AsyncGenerator[GenerationStep, None]:
    """Yield the steps of a call's prompts; after an abort, the last step of each sequence has that finish reason."""
    first = True
    counts = [each.parameters.num_sequences for each in requests]
    unfinished = {(place, index) for place, count in enumerate(counts) for index in range(count)}
    in_turn = sum(counts[:1] if isinstance(model.turns, RollingBatch) else counts)
    running = _running_call(model, request_id, record, client, requests=requests, num_sequences=in_turn)
    async with running as (call, turn):
        await call.wait_for(turn)
        record.submit(requests)
        async with aclosing(_steps(model, model.backend, requests, call, turn)) as steps:
            async for step in steps:
                call.waits = False
                if call.is_cut:
                    call.drop_interruption()
                if first:
                    first = not record.begin(step)
                if step.finish_reason is not None:
                    unfinished.discard((step.prompt_index, step.sequence_index))
                    record.end(step)
                yield step
                if not call.begin_step():
                    break
        if unfinished and not call.aborted:
            raise unfinished_error(model.backend, min(unfinished)[1])
    for place, index in sorted(unfinished):
        step = GenerationStep([], "abort", index, prompt_index=place)
        record.end(step)
        yield step


def _steps(
    model: Runner, backend: Backend[Any], requests: Sequence[ValidRequest], call: RunningCall, turn: Turn
) -> AsyncGenerator[GenerationStep, None]:
    """Return the steps of a call whose turn has come; in a rolling batch each of several prompts has a turn."""
    if len(requests) == 1:
        return backend.steps(requests[0])
    turns, streams = model.turns, [backend.steps(request) for request in requests]
    if isinstance(turns, RollingBatch):
        own = [
            turns.closing(turn),
            *(turns.of(call.client, each.parameters.num_sequences, call.is_unread) for each in requests[1:]),
        ]
        streams = [_in_turn(waiting, steps) for waiting, steps in zip(own, streams, strict=True)]
    return merge(streams, of_prompts=True)


async def _in_turn(
    waiting: AbstractContextManager[Turn], steps: AsyncGenerator[GenerationStep, None]
) -> AsyncGenerator[GenerationStep, None]:
    with waiting as turn:
        await turn.wait()
        async with aclosing(steps):
            async for step in steps:
                yield step


async def yield_until_aborted(
    model: Runner,
    prompts: Sequence[Prompt],
    request_id: str,
    record: RequestRecord,
    client: str,
    begin: Callable[[], AsyncGenerator[T, None]],
    unit: str,
) -> AsyncGenerator[T, None]:
    """Yield the parts of a call's answer, each a `unit`. Raise RequestAborted if another client aborts the call."""
    async with _running_call(model, request_id, record, client, unit=unit) as (call, turn):
        await call.wait_for(turn)
        record.submit(prompts)
        async with aclosing(begin()) as items:
            async for item in items:
                call.waits = False
                if call.is_cut:
                    call.drop_interruption()
                yield item
                if not call.begin_step():
                    break
    if call.aborted:
        raise RequestAborted("the request was aborted")
