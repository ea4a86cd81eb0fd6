"""The contents of Ollama's generation requests, except the prompt."""

from dataclasses import dataclass, replace
from typing import Any

from lmi_core.calls.answer import json_answer
from lmi_core.chat_formatter import ChatAnswer
from lmi_core.errors import InvalidPayload
from lmi_core.formatter import OutputFormatter
from lmi_core.handler import Answer, Call
from lmi_core.served_model import ServedModel
from lmi_handlers.ollama.formatters import Members, OllamaStreamFormatter, OllamaWholeFormatter
from lmi_handlers.ollama.options import OllamaOptions
from lmi_handlers.ollama.payload import OllamaRequest
from lmi_handlers.ollama.stopwatch import Stopwatch, written_time


@dataclass(frozen=True, slots=True)
class Asked:
    """A call to a model by the client's name, with the settings of its answer."""

    payload: OllamaRequest
    name: str
    call: Call
    model: ServedModel
    stopwatch: Stopwatch
    members: Members

    def formatter(self, answer: ChatAnswer) -> OutputFormatter:
        formatter = OllamaWholeFormatter if self.payload.stream is False else OllamaStreamFormatter
        return formatter(replace(answer, model=self.name), self.stopwatch, self.members)

    def parameters(self) -> tuple[dict[str, Any], dict[str, str]]:
        """Return LMI's parameters of `options`, `format` and `logprobs`, and the client's name of each."""
        parameters, names = (self.payload.options or OllamaOptions()).parameters()
        names |= {"guided_json": "format", "logprobs": "top_logprobs"}
        if (schema := self.payload.schema_of_format) is not None:
            parameters["guided_json"] = schema
        if self.payload.logprobs and self.payload.top_logprobs:
            parameters["logprobs"] = self.payload.top_logprobs
        return parameters, names

    def check_thinking(self) -> None:
        """Raise InvalidPayload, with a message that clients recognise, if a model without thinking is asked for it."""
        if self.payload.think and self.model.options.reasoning_format is None:
            raise InvalidPayload(
                f'"{self.name}" does not support thinking: `think` needs option.reasoning_parser. '
                f"Given: {self.payload.think!r}"
            )

    def without_prompt(self) -> Answer:
        """Return the answer to a request that loads or unloads a model, which has no effect: it stays loaded."""
        reason = "unload" if self.payload.unloads else "load"
        head = {"model": self.name, "created_at": written_time()}
        return json_answer(head | self.members.of({}) | {"done": True, "done_reason": reason})
