"""The rolling batch of a model function, which is called repeatedly with all unfinished requests."""

import asyncio
import inspect
import logging
import secrets
from collections.abc import Awaitable
from dataclasses import dataclass
from typing import Any

from lmi_core.script.djl_names.inputs import Input, batch_of
from lmi_core.script.djl_names.outputs import Output
from lmi_core.script.function.answers import FAILURES, answer_of, failure, finalize, head_of
from lmi_core.script.function.protocol import End, Head, Reply, Working
from lmi_core.script.function.script import FunctionScript
from lmi_core.script.rolling.steps import RollingStep, WrongAnswer, read_steps

logger = logging.getLogger(__name__)

RESET = "reset_rollingbatch"  # a property of the call after a failed one, which makes the function forget its requests
SEED_BITS = 31


@dataclass
class RollingRequest:
    """A request in the batch until its last answer."""

    call_id: int
    inputs: Input
    known: bool = False  # the function has received it
    begun: bool = False  # the head of its answer has been sent
    cancelled: bool = False  # its answers are ignored, but the function still counts it

    def next_inputs(self) -> Input:
        """Return the request, with a seed, for its first call, and an empty Input for later calls."""
        if not self.known:
            self.known = True
            self.inputs.content.add("seed", str(secrets.randbits(SEED_BITS)).encode())
            return self.inputs
        unfinished = Input()
        unfinished.unfinished = True
        unfinished.content.add("data", b"")
        return unfinished


class RollingBatch:
    """The unfinished requests in order of arrival; the function refers to them by index."""

    def __init__(self, script: FunctionScript, runner: asyncio.Runner, content_type: str) -> None:
        self._script = script
        self._runner = runner
        self._content_type = content_type
        self._requests: list[RollingRequest] = []
        self._reset = False

    @property
    def empty(self) -> bool:
        return not self._requests

    def add(self, call_id: int, inputs: Input) -> None:
        """Add a request to the next call."""
        self._requests.append(RollingRequest(call_id, inputs))

    def cancel(self, call_id: int) -> list[Reply]:
        """Drop a request that was not in a call yet; otherwise ignore its further answers."""
        for request in self._requests:
            if request.call_id == call_id:
                request.cancelled = True
                if not request.known:
                    self._requests.remove(request)
                    return [End(call_id)]
        return []

    def step(self) -> list[Reply | Working]:
        """Call the function once with the whole batch."""
        if self.empty:
            return []
        try:
            output = answer_of(self._call(self._inputs()))
        except (Exception, SystemExit) as error:  # a user's function may raise anything
            self._script.log(error, [request.inputs for request in self._requests], self._script.function)
            return self._fail_with(error)
        if output.code >= FAILURES:
            return self._fail_all(output, f"answered {output.code}: {output.message}")
        try:
            steps = read_steps(output, len(self._requests), self._content_type)
        except WrongAnswer as error:
            return self._fail_all(Output().error(f"{self._name} {error}"), str(error))
        replies = [
            reply for request, step in zip(self._requests, steps, strict=True) for reply in self._replies(request, step)
        ]
        self._requests = [request for request, step in zip(self._requests, steps, strict=True) if not step.last]
        self._script.initialization_error = None
        finalize(output)
        return replies

    def _inputs(self) -> Input:
        batch = batch_of([request.next_inputs() for request in self._requests])
        if self._reset:
            batch.properties[RESET] = "true"
            self._reset = False
        return batch

    def _call(self, inputs: Input) -> Any:
        result = self._script.call(self._script.function, inputs)
        return self._runner.run(_result_of(result)) if inspect.isawaitable(result) else result

    def _replies(self, request: RollingRequest, step: RollingStep) -> list[Reply | Working]:
        if request.cancelled:
            return [End(request.call_id) if step.last else Working(request.call_id)]
        replies = step.replies(request.call_id, request.begun)
        request.begun = request.begun or any(isinstance(reply, Head) for reply in replies)
        return replies

    def _fail_with(self, error: BaseException) -> list[Reply | Working]:
        words = self._script.name_of(self._script.function)
        note = self._script.note(error)
        return [
            reply for request in self._clear() for reply in failure(request.call_id, error, words, request.begun, note)
        ]

    @property
    def _name(self) -> str:
        return f"{self._script.function} in {self._script.path.name}"

    def _fail_all(self, output: Output, reason: str) -> list[Reply | Working]:
        """Return an error as every request's answer, or as the end of a stream that has started."""
        logger.error("%s %s", self._name, reason)
        replies: list[Reply | Working] = []
        for request in self._clear():
            if not request.begun:
                replies.append(head_of(request.call_id, output))
            replies.append(End(request.call_id, f"{self._name} {reason}" if request.begun else None))
        return replies

    def _clear(self) -> list[RollingRequest]:
        failed, self._requests = self._requests, []
        self._reset = True
        return failed


async def _result_of(result: Awaitable[Any]) -> Any:
    return await result
