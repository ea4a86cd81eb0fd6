"""The output formatters `openai_chat` and `openai_chat_stream`, for OpenAI's chat completions, and TGI's stream.

Other OpenAI dialects share their events, finish reasons and error objects.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

import orjson
from msgspec import structs

from lmi_core.errors import LmiError
from lmi_core.formatter import ChatAnswer
from lmi_core.generation.output import NO_TOKEN, FinishReason, GeneratedSequence, GenerationOutput, Token, text_of
from lmi_core.generation.parameters import GenerationParameters
from lmi_core.payloads.json_list import json_list
from lmi_handlers.chat.schema import ChatSchemaFormatter, ChatStream, JsonObject, WholeChatFormatter, answers
from lmi_handlers.fields import vllm_schema

FINISH_REASONS: Mapping[FinishReason | None, str | None] = {**vllm_schema.FINISH_REASONS, None: None}
DONE = b"data: [DONE]\n\n"
# Members without a value that vLLM's server sends as null in whole answers.
ANSWER = dict.fromkeys(("service_tier", "kv_transfer_params", "ec_transfer_params", "metrics"))
CHOICE = dict.fromkeys(("token_ids", "routed_experts"))
PROMPT = dict.fromkeys(("prompt_logprobs", "prompt_token_ids"))
# Members of a message without a value that vLLM's server sends as null.
MESSAGE = dict.fromkeys(("refusal", "annotations", "audio", "function_call", "reasoning", "reasoning_content"))

# A choice of a chunk, in the order of its members.
DELTA: JsonObject = {"index": 0, "delta": {}, "logprobs": None, "finish_reason": None, "token_ids": None}
LAST_DELTA = dict.fromkeys(("index", "delta", "logprobs", "finish_reason", "stop_reason", "token_ids"))


def event(content: object) -> bytes:
    """Return the content as a server-sent event of JSON."""
    return b"data: " + orjson.dumps(content) + b"\n\n"


class ChunkEvents:
    """The events of one stream, each a chunk with one choice; common parts are encoded once."""

    def __init__(self, head: Mapping[str, object], include_usage: bool) -> None:
        self._head = head
        self._include_usage = include_usage  # in the last chunk; it is null in the others
        self._before = b"data: " + orjson.dumps({**head, "choices": []}).removesuffix(b"]}")
        self._after = b'],"usage":null}\n\n' if include_usage else b"]}\n\n"

    def count(self, usage: object) -> None:
        """Add this usage to the following chunks."""
        self._after = b'],"usage":' + orjson.dumps(usage) + b"}\n\n"

    def choice(self, choice: object) -> bytes:
        return self._before + orjson.dumps(choice) + self._after

    def first(self, choice: object, members: Mapping[str, object]) -> bytes:
        """Return the event of a choice, with further members next to it."""
        if not members:
            return self.choice(choice)
        return (
            self._before + orjson.dumps(choice) + b"]," + orjson.dumps(members)[1:-1] + self._after.removeprefix(b"]")
        )

    def end(self, usage: Callable[[], object]) -> list[bytes]:
        if not self._include_usage:
            return [DONE]
        return [event({**self._head, "choices": [], "usage": usage()}), DONE]


def with_itself(token: Token) -> Token:
    """Return the token with itself appended to its `top_tokens`, if it is not among them."""
    likeliest = token.top_tokens
    if not likeliest or any(top.id == token.id for top in likeliest):
        return token
    return structs.replace(token, top_tokens=[*likeliest, token])


def stop_reason(
    parameters: GenerationParameters, stop_sequence: str | None, tokens: Sequence[Token]
) -> str | int | None:
    """Return vLLM's `stop_reason`: the stop string, or the id in `stop_token_ids`, that ended a sequence."""
    if stop_sequence is not None or not tokens:
        return stop_sequence
    last = tokens[-1].id
    return last if last in (getattr(parameters, "stop_token_ids", None) or ()) else None


def error_object(error: LmiError) -> dict[str, Any]:
    """Return the error object for a failure after generation began, which is the server's fault."""
    return {"error": {"message": error.message, "type": "server_error", "param": None, "code": error.kind}}


def error_events(error: LmiError) -> list[bytes]:
    """Return the last events of a stream that failed: the error, and `[DONE]`."""
    return [event(error_object(error)), DONE]


def finish_reason(reason: FinishReason | None, call_reason: str | None) -> str | None:
    """Return OpenAI's finish reason; `call_reason` replaces `stop` for a choice with a tool call."""
    return call_reason if call_reason and reason in ("eos_token", "stop_sequence") else FINISH_REASONS[reason]


def served_by(answer: ChatAnswer) -> JsonObject:
    return {"model": answer.model, "system_fingerprint": answer.fingerprint}


def prompt_members(formatter: ChatSchemaFormatter, output: GenerationOutput) -> JsonObject:
    """Return vLLM's members about the prompt that the client asked for."""
    members: JsonObject = {}
    prefill = output.prefill[output.prompt_index]
    if formatter.chat.prompt_log_probs is not None and prefill is not None:
        members["prompt_logprobs"] = vllm_schema.prompt_logprobs(
            prefill, formatter.chat.prompt_log_probs, formatter.chat.tokenizer
        )
    if formatter.chat.prompt_token_ids:
        members["prompt_token_ids"] = output.request.prompt_ids
    if formatter.chat.prompt_text:
        members["prompt_text"] = output.request.prompt
    return members


class OpenAiChatFormatter(WholeChatFormatter):
    name: ClassVar[str] = "openai_chat"
    content_type = "application/json"

    def whole(self, output: GenerationOutput) -> bytes:
        return orjson.dumps(
            self.response("chat.completion", self.choices(output))
            | served_by(self.chat)
            | {"usage": self.usage(output), **ANSWER, **PROMPT, "prompt_text": None}
            | prompt_members(self, output)
            | output.transfer,
        )

    def error(self, error: LmiError) -> bytes:
        return orjson.dumps(error_object(error))

    def choices(self, output: GenerationOutput) -> list[JsonObject]:
        return [self.choice(index, sequence, output) for index, sequence in enumerate(answers(output))]

    def choice(self, index: int, sequence: GeneratedSequence, output: GenerationOutput) -> JsonObject:
        message = self.message(sequence)
        called = "tool_calls" in message or "function_call" in message
        content = json_list(self.log_prob_items(map(with_itself, sequence.tokens))) if self.chat.log_probs else []
        return CHOICE | {
            "index": index,
            "message": MESSAGE | message,
            "logprobs": {"content": content, "refusal": None} if self.chat.log_probs else None,
            "finish_reason": finish_reason(sequence.finish_reason, self.call_reason if called else None),
            "stop_reason": stop_reason(output.parameters, sequence.stop_sequence, sequence.tokens),
            "token_ids": [token.id for token in sequence.tokens] if self.chat.token_ids else None,
        }


class OpenAiChatStreamFormatter(ChatSchemaFormatter):
    """Server-sent events: for each choice its role, its deltas and the finish reason; then `[DONE]`.

    A delta is the text of a step, or of a token if token details are requested or there is more than content.
    """

    name: ClassVar[str] = "openai_chat_stream"
    content_type = "text/event-stream"
    ends_apart: ClassVar[bool] = True  # whether the finish reason has a delta of its own

    def __init__(self, answer: ChatAnswer) -> None:
        super().__init__(answer)
        self._streams: dict[int, ChatStream] = {}
        self._has_details = answer.log_probs or answer.token_ids
        # Like DeepSeek's API, whose clients read the member of every delta; in OpenAI's library, a missing member
        # raises an error.
        self._unset: JsonObject = {} if answer.reasoning is None else {"reasoning_content": None}
        head = self.head("chat.completion.chunk") | served_by(answer)
        self._events = ChunkEvents(head, answer.include_usage)

    def format(self, output: GenerationOutput) -> list[bytes]:
        step = output.step
        index = step.sequence_index
        events = [] if index in self._streams else self._begin(index, output)
        if self.chat.continuous_usage:
            self._events.count(self.usage(output))
        ended = step.finish_reason is not None
        if self._streams[index].all_content and not self._has_details:
            text = "".join(map(text_of, step.tokens))
            choices = [DELTA | {"index": index, "delta": self._unset | {"content": text}}] if text else []
        else:
            tokens = step.tokens or ([NO_TOKEN] if ended else [])
            choices = []
            for place, token in enumerate(tokens, start=1):
                choices += self._token_choices(index, token, last=ended and place == len(tokens))
        if ended:
            last = choices.pop() if choices and not self.ends_apart else self._empty(index)
            choices.append(LAST_DELTA | last | self._end(index, output))
        events += map(self._events.choice, choices)
        return events + self._events.end(lambda: self.usage(output)) if output.finished else events

    def error(self, error: LmiError) -> list[bytes]:
        return error_events(error)

    def _begin(self, index: int, output: GenerationOutput) -> list[bytes]:
        self._streams[index] = self.new_stream()
        delta = self._unset | {"role": "assistant", "content": ""}
        if self.chat.continuous_usage:
            usage = self.usage(output)
            before = usage["completion_tokens"] - len(output.step.tokens)
            self._events.count(usage | {"completion_tokens": before, "total_tokens": usage["prompt_tokens"] + before})
        choice = {"index": index, "delta": delta, "logprobs": None, "finish_reason": None}
        begun = self._events.first(
            choice, {"prompt_token_ids": None, "prompt_text": None} | prompt_members(self, output)
        )
        echo = self.chat.echo
        return [begun, self._events.choice(self._choice(index, {"content": echo}))] if echo else [begun]

    def _token_choices(self, index: int, token: Token, *, last: bool) -> list[JsonObject]:
        """Return the choices of a token's deltas; the first has the token's details."""
        deltas = self._streams[index].deltas(token, last)
        shown = None if token is NO_TOKEN else token
        if shown and not deltas and self._has_details:
            deltas = [{}]
        return [self._choice(index, delta, None if place else shown) for place, delta in enumerate(deltas)]

    def _empty(self, index: int) -> JsonObject:
        """Return a choice without text; its content is "", because clients may add it to earlier content."""
        return self._choice(index, {} if self._streams[index].called else {"content": ""})

    def _end(self, index: int, output: GenerationOutput) -> JsonObject:
        """Return the members of a choice that say why its sequence ended."""
        step, called = output.step, self._streams[index].called
        return {
            "finish_reason": finish_reason(step.finish_reason, self.call_reason if called else None),
            "stop_reason": stop_reason(output.parameters, step.stop_sequence, step.tokens),
        }

    def _choice(self, index: int, delta: JsonObject, token: Token | None = None) -> JsonObject:
        """Return the choice with one delta, and with the details of `token` that the client asked for."""
        log_probs = None
        if token and self.chat.log_probs:
            log_probs = {"content": self.log_prob_content([with_itself(token)]), "refusal": None}
        token_ids = ([token.id] if token else []) if self.chat.token_ids else None
        own = {"index": index, "delta": self._unset | delta, "logprobs": log_probs, "token_ids": token_ids}
        return DELTA | own


class TgiChatStreamFormatter(OpenAiChatStreamFormatter):
    """The same events with `option.tgi_compat`: each delta has the role, the first a text or a call, and the last one
    the finish reason. Each delta of a call has its id, because TGI's client cannot read one without.
    """

    name: ClassVar[str] = "tgi_chat_stream"
    ends_apart = False

    def __init__(self, answer: ChatAnswer) -> None:
        super().__init__(answer)
        self._unset |= {"role": "assistant"}
        self._calls: dict[int, JsonObject] = {}  # by sequence, the members in every delta of its latest call

    def _begin(self, index: int, output: GenerationOutput) -> list[bytes]:
        first, *echoed = super()._begin(index, output)
        return [first, *echoed] if prompt_members(self, output) else echoed

    def _choice(self, index: int, delta: JsonObject, token: Token | None = None) -> JsonObject:
        return super()._choice(index, self._complete(index, delta), token)

    def _complete(self, index: int, delta: JsonObject) -> JsonObject:
        """Return the delta with what TGI repeats in those of a call; one without a piece of it has no arguments."""
        if not delta and index in self._calls:
            delta = {"tool_calls": [{"function": {"arguments": ""}}]}
        if "function" not in (call := delta.get("tool_calls", [{}])[0]):
            return delta
        if "id" in call:
            self._calls[index] = {member: call[member] for member in ("index", "id", "type")}
        function = {"name": None} | call["function"]
        return {"tool_calls": [self._calls[index] | call | {"function": function}]}
