"""Answers that continue from call to call of a rolling-batch `handle`."""

import threading
from collections import deque
from concurrent.futures import Future
from contextlib import aclosing
from typing import Any

from djl_python.services.model_engine import ModelEngine
from lmi_core.errors import LmiError
from lmi_core.formatter import OutputFormatter
from lmi_core.generation.request import ValidRequest
from lmi_core.script.djl_names.outputs import Output

FAILED = 424


class RollingAnswer:
    """One request's answer: the text since the last call, and whether it is complete."""

    def __init__(self, formatter: OutputFormatter, news: threading.Event) -> None:
        self.formatter = formatter
        self.news = news
        self.task: Future[None] | None = None
        self._pieces: deque[bytes] = deque()
        self._error: LmiError | None = None
        self._ended = False

    async def write(self, engine: ModelEngine, request: ValidRequest) -> None:
        """Collect the pieces, in the engine's thread."""
        try:
            async with aclosing(engine.write(request, self.formatter)) as pieces:
                async for piece in pieces:
                    self._pieces.append(piece)
                    self.news.set()
        except Exception as error:
            self._error = error if isinstance(error, LmiError) else LmiError(f"{type(error).__name__}: {error}")
        self._ended = True
        self.news.set()

    def take(self) -> dict[str, Any]:
        """Return the new text and its state, as arguments of `Output.binary_encode`."""
        last = self._ended  # read before the pieces, so that none is missed
        data = b"".join(self._pieces.popleft() for _ in range(len(self._pieces)))
        fields: dict[str, Any] = {"data": data.decode(), "last": last}
        if last and self._error is not None:
            fields |= {"code": FAILED, "error": self._error.message}
        return fields


class RollingAnswers:
    """The running requests, in the order of their batch."""

    def __init__(self, engine: ModelEngine) -> None:
        self._engine = engine
        self._news = threading.Event()
        self.active: list[RollingAnswer] = []

    def begin(self, request: ValidRequest, formatter: OutputFormatter) -> RollingAnswer:
        answer = RollingAnswer(formatter, self._news)
        answer.task = self._engine.submit(answer.write(self._engine, request))
        return answer

    def advance(self, batch: list[RollingAnswer | str]) -> Output:
        """Wait until an answer of the batch has grown, and return each one's new text; a plain text is an error."""
        answers = [each for each in batch if isinstance(each, RollingAnswer)]
        if len(answers) == len(batch):
            self._news.wait()
        self._news.clear()
        taken = {id(answer): answer.take() for answer in answers}
        self.active = [answer for answer in answers if not taken[id(answer)]["last"]]
        output = Output()
        for index, each in enumerate(batch):
            failed = isinstance(each, str)
            fields = {"data": "", "last": True, "code": FAILED, "error": each} if failed else taken[id(each)]
            kind = "application/json" if isinstance(each, str) else each.formatter.content_type
            output.content.add(f"batch_{index:03}.data", Output.binary_encode(fields))
            output.add_property(f"batch_{index}_Content-Type", kind)
        return output

    def reset(self) -> None:
        """Abort the unfinished answers."""
        for answer in self.active:
            if answer.task is not None:
                answer.task.cancel()
        self.active = []
