"""The output formatters `openai_responses` and `openai_responses_stream`, for OpenAI's responses."""

from collections.abc import Sequence
from typing import ClassVar

import orjson

from lmi_core.calls.conversations import Conversations
from lmi_core.errors import GenerationFailed, LmiError
from lmi_core.formatter import ChatAnswer
from lmi_core.generation.output import NO_TOKEN, FinishReason, GenerationOutput, Token
from lmi_core.generation.request import ValidRequest
from lmi_handlers.chat.openai_formatters import error_object
from lmi_handlers.chat.schema import ChatSchemaFormatter, JsonObject, answers
from lmi_handlers.responses.output import UNNUMBERED, ResponseOutput, event
from lmi_handlers.responses.response import STATUSES, ResponseFacts, usage

FAILED = GenerationFailed("the engine failed while it generated the answer")


class ResponseFormatter(ChatSchemaFormatter):
    """The base of both formatters, with the complete response."""

    def __init__(self, answer: ChatAnswer, asked: ResponseFacts) -> None:
        super().__init__(answer)
        self.asked = asked
        self.answer = ResponseOutput(self.new_answer_reader(), asked.functions)

    def read(self, token: Token, last: bool) -> list[JsonObject]:
        """Process a token, and return its events."""
        asked = self.chat.log_probs and token is not NO_TOKEN
        return self.answer.read(token, last, self.log_prob_content([token]) if asked else [])

    def end(self, reason: FinishReason) -> list[JsonObject]:
        """End the last item, and return the events."""
        return self.answer.end("completed" if STATUSES[reason] == "completed" else "incomplete")

    def end_response(self, output: GenerationOutput, reason: FinishReason) -> bytes:
        """Return the response, and store it if requested."""
        failure = FAILED if reason == "error" else None
        counts = usage(self.usage(output))
        response = self.asked.response(STATUSES[reason], self.answer.items("completed"), counts, failure)
        data = orjson.dumps(response | output.transfer)
        self.keep(data, self.answer.item_ids)
        return data

    def keep(self, response: bytes, item_ids: Sequence[str] = ()) -> None:
        """Store the response, unless the model's own code changes it: the code may remove parts."""
        if not self.is_changed:
            self.asked.keep(response, item_ids)


class OpenAiResponseFormatter(ResponseFormatter):
    name: ClassVar[str] = "openai_responses"
    text_path = ("output", "content", "text")
    content_type = "application/json"

    def format(self, output: GenerationOutput) -> bytes:
        if not output.finished:
            return b""
        (sequence,) = answers(output)
        reason = sequence.finish_reason
        assert reason is not None, "the output has finished"
        tokens = sequence.tokens or [NO_TOKEN]
        if self.chat.log_probs:
            for place, token in enumerate(tokens, start=1):
                self.read(token, last=place == len(tokens))
        else:
            self.answer.read_all(tokens)
        self.end(reason)
        return self.end_response(output, reason)

    def error(self, error: LmiError) -> bytes:
        return orjson.dumps(error_object(error))


class OpenAiResponseStreamFormatter(ResponseFormatter):
    """Server-sent events, named and numbered, from `response.created` to one of the end."""

    name: ClassVar[str] = "openai_responses_stream"
    repeats_text: ClassVar[bool] = True
    content_type = "text/event-stream"

    def __init__(self, answer: ChatAnswer, asked: ResponseFacts, conversations: Conversations | None = None) -> None:
        """Register the response with `conversations`, if given, while it is generated."""
        super().__init__(answer, asked)
        self._conversations = conversations
        self._number = 0  # number of events so far
        self.requests: Sequence[ValidRequest] = ()  # requests of the call, once it generates

    @property
    def request_id(self) -> str:
        """The id of the call, which need not be unique."""
        return self.asked.request_id

    @property
    def key(self) -> str | None:
        """The holder of the API key that owns the response."""
        return self.asked.key

    def so_far(self, status: str) -> bytes:
        """Return the response generated so far, with this status."""
        of_items = "in_progress" if status == "in_progress" else "incomplete"
        return orjson.dumps(self.asked.response(status, self.answer.items(of_items)))

    def format(self, output: GenerationOutput) -> list[bytes]:
        self.requests = output.requests
        events = [] if self._number else self._begin()
        step = output.step
        reason = step.finish_reason
        tokens = step.tokens or ([NO_TOKEN] if reason else [])
        for place, token in enumerate(tokens, start=1):
            events += map(self._encode, self.read(token, last=reason is not None and place == len(tokens)))
        if reason is None:
            return events
        events += map(self._encode, self.end(reason))
        response = self.end_response(output, reason)
        self._forget()
        status = STATUSES[reason]
        last = status if status in ("completed", "failed") else "incomplete"
        return [*events, self._encode(event(last, {"response": orjson.Fragment(response)}))]

    def error(self, error: LmiError) -> list[bytes]:
        """Return the events of a failure, with the response generated so far."""
        self._forget()
        body = {
            "type": "error",
            "sequence_number": UNNUMBERED,
            "code": error.kind,
            "message": error.message,
            "param": None,
        }
        response = self.asked.response("failed", self.answer.items("incomplete"), error=error)
        self.keep(orjson.dumps(response))
        return [self._encode(body), self._encode(event("failed", {"response": response}))]

    def _begin(self) -> list[bytes]:
        if self._conversations is not None and not self.is_changed:
            self._conversations.running[self.asked.response_id] = self
        response = {"response": self.asked.response("in_progress", [])}
        return [self._encode(event(kind, response)) for kind in ("created", "in_progress")]

    def _forget(self) -> None:
        if self._conversations is not None:
            self._conversations.running.pop(self.asked.response_id, None)

    def _encode(self, body: JsonObject) -> bytes:
        """Number and encode the event."""
        body["sequence_number"] = self._number
        self._number += 1
        kind: str = body["type"]
        return b"event: " + kind.encode() + b"\ndata: " + orjson.dumps(body) + b"\n\n"
