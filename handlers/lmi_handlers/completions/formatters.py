"""The output formatters `openai_completions` and `openai_completions_stream`, for OpenAI's completions."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import orjson

from lmi_core.errors import LmiError
from lmi_core.formatter import OutputFormatter
from lmi_core.generation.output import FinishReason, GeneratedSequence, GenerationOutput, Token
from lmi_core.generation.parameters import GenerationParameters
from lmi_core.generation.tokenizer import Tokenizer
from lmi_core.payloads.json_list import json_list
from lmi_handlers.chat.openai_formatters import (
    ANSWER,
    CHOICE,
    FINISH_REASONS,
    PROMPT,
    ChunkEvents,
    error_events,
    error_object,
    stop_reason,
)
from lmi_handlers.chat.schema import JsonObject, token_id_text, token_text, usage
from lmi_handlers.fields.vllm_schema import finite, prompt_logprobs

UNENDED = dict.fromkeys(("finish_reason", "stop_reason", "prompt_token_ids", "token_ids"))  # of a choice in a chunk


@dataclass(frozen=True, slots=True)
class CompletionAnswer:
    """The facts about a request for its output formatter."""

    response_id: str
    model: str
    fingerprint: str
    tokenizer: Tokenizer
    count: int  # choices per prompt
    echo: bool = False
    generated: bool = True  # False: the answer contains only the echoed prompt
    log_probs: int | None = None  # number of top tokens; None: no log probabilities
    include_usage: bool = False  # in the last chunk of a stream
    continuous_usage: bool = False  # in each chunk too
    token_ids_as_text: bool = False  # in the log probabilities
    token_ids: bool = False  # of the prompt and the choices
    prompt_log_probs: int | None = None  # number of top tokens per prompt token; None: no log probabilities


class CompletionsFormatter(OutputFormatter):
    """The base of both formatters: usage, finish reasons and log probabilities."""

    def __init__(self, answer: CompletionAnswer) -> None:
        self.asked = answer
        self.head = {
            "id": answer.response_id,
            "object": "text_completion",
            "created": int(time.time()),
            "model": answer.model,
            "system_fingerprint": answer.fingerprint,
        }

    def reads_log_probs(self, parameters: GenerationParameters) -> bool:
        return self.asked.log_probs is not None

    def usage(self, output: GenerationOutput) -> JsonObject:
        counts = usage(output)
        if not self.asked.generated:
            counts |= {"completion_tokens": 0, "total_tokens": counts["prompt_tokens"]}
        return counts

    def finish_reason(self, reason: FinishReason | None) -> str | None:
        return FINISH_REASONS[reason if self.asked.generated or reason is None else "length"]

    def prefill(self, output: GenerationOutput, prompt_index: int) -> list[Token]:
        """Return the prompt's tokens if an echo puts them into the log probabilities; otherwise none."""
        return output.prefill[prompt_index] or [] if self.asked.echo else []

    def log_prob_lists(
        self, tokens: Sequence[Token], offset: int, prompt: str = "", prefill: Sequence[Token] = (), cut: bool = False
    ) -> JsonObject | None:
        """Return the lists of `logprobs`; `offset` is the length of the choice's text before `prompt` and `tokens`.

        If `cut`, the prompt may start with tokens that are not in `prefill`.
        """
        if self.asked.log_probs is None:
            return None
        offsets = self._last_offsets(prompt, prefill) if cut else self._prompt_offsets(prompt, prefill)
        offset += len(prompt)
        for token in tokens:
            offsets.append(offset)
            offset += len(token.text)
        tokens = [*prefill, *tokens]
        return {
            "tokens": [self._text(token) for token in tokens],
            "token_logprobs": [finite(token.log_prob) for token in tokens],
            "top_logprobs": json_list(map(self._likeliest, tokens)),
            "text_offset": offsets,
        }

    def _prompt_offsets(self, prompt: str, prefill: Sequence[Token]) -> list[int]:
        """Return the start of each prompt token; special tokens added by the tokenizer have no length."""
        offsets: list[int] = []
        offset = 0
        for token in prefill:
            offsets.append(offset)
            text = self._prompt_text(token)
            if not token.special or prompt.startswith(text, offset):
                offset += len(text)
        return offsets

    def _last_offsets(self, prompt: str, prefill: Sequence[Token]) -> list[int]:
        """Return the start of each of the prompt's last tokens, counted from its end."""
        offsets: list[int] = []
        offset = len(prompt)
        for token in reversed(prefill):
            text = self._prompt_text(token)
            if not token.special or prompt.endswith(text, 0, offset):
                offset = max(0, offset - len(text))
            offsets.append(offset)
        return offsets[::-1]

    def _prompt_text(self, token: Token) -> str:
        return token_text(self.asked.tokenizer.token_bytes(token.id)) if token.special else token.text

    def _likeliest(self, token: Token) -> dict[str, float | None] | None:
        """Return the token, first as in vLLM, and the most likely ones; None for a prompt's first token."""
        if token.log_prob is None:
            return None
        likeliest = (token.top_tokens or [])[: self.asked.log_probs]
        return {self._text(each): finite(each.log_prob) for each in [token, *likeliest]}

    def _text(self, token: Token) -> str:
        if self.asked.token_ids_as_text:
            return token_id_text(token.id)
        return token_text(self.asked.tokenizer.token_bytes(token.id))


def _may_be_cut(output: GenerationOutput, prompt_index: int) -> bool:
    """Return whether the client cuts off the prompt's first tokens; an echo still has all of its text, as in vLLM."""
    parameters = output.requests[prompt_index].parameters
    return parameters.max_prompt_tokens is not None and not parameters.keeps_first_tokens


class OpenAiCompletionsFormatter(CompletionsFormatter):
    name: ClassVar[str] = "openai_completions"
    content_type = "application/json"

    def format(self, output: GenerationOutput) -> bytes:
        if not output.finished:
            return b""
        choices = [
            self._choice(prompt_index * self.asked.count + place, output, prompt_index, sequence)
            for prompt_index in range(len(output.requests))
            for place, sequence in enumerate(output.best_sequences(self.asked.count, prompt_index))
        ]
        members = ANSWER | output.transfer
        return orjson.dumps({**self.head, "choices": choices, "usage": self.usage(output), **members})

    def error(self, error: LmiError) -> bytes:
        return orjson.dumps(error_object(error))

    def _choice(
        self, index: int, output: GenerationOutput, prompt_index: int, sequence: GeneratedSequence
    ) -> JsonObject:
        tokens = sequence.tokens if self.asked.generated else []
        prompt = output.requests[prompt_index].prompt if self.asked.echo else ""
        prefill = self.prefill(output, prompt_index)
        choice = {
            "index": index,
            "text": prompt + (sequence.text if self.asked.generated else ""),
            "logprobs": self.log_prob_lists(tokens, 0, prompt, prefill, _may_be_cut(output, prompt_index)),
            "finish_reason": self.finish_reason(sequence.finish_reason),
            "stop_reason": stop_reason(output.parameters, sequence.stop_sequence, tokens),
        }
        details: JsonObject = {}
        known = output.prefill[prompt_index]
        if self.asked.prompt_log_probs is not None and known is not None:
            details["prompt_logprobs"] = prompt_logprobs(known, self.asked.prompt_log_probs, self.asked.tokenizer)
        if self.asked.token_ids:
            details["prompt_token_ids"] = output.requests[prompt_index].prompt_ids
            details["token_ids"] = [token.id for token in tokens]
        return choice | CHOICE | PROMPT | details


class Part(NamedTuple):
    """The piece of a choice in one event of a stream."""

    text: str
    tokens: list[Token]  # generated tokens
    prompt: str = ""  # the echoed prompt at the start of `text`
    prefill: Sequence[Token] = ()  # the tokens of `prompt`
    cut: bool = False  # whether earlier tokens may be missing


class OpenAiCompletionsStreamFormatter(CompletionsFormatter):
    """Server-sent events: one for each step, or for each token if its details are requested; then `[DONE]`."""

    name: ClassVar[str] = "openai_completions_stream"
    content_type = "text/event-stream"

    def __init__(self, answer: CompletionAnswer) -> None:
        super().__init__(answer)
        self._lengths: dict[int, int] = {}  # length of the text so far, by choice
        self._begun: set[int] = set()  # choices for which the token ids of the prompt have been sent
        self._events = ChunkEvents(self.head, self.asked.include_usage)
        self._has_details = answer.echo or answer.token_ids or answer.log_probs is not None

    def format(self, output: GenerationOutput) -> list[bytes]:
        step = output.step
        index = step.prompt_index * self.asked.count + step.sequence_index
        reason = self.finish_reason(step.finish_reason)
        tokens = step.tokens if self.asked.generated else []
        if self.asked.continuous_usage:
            self._events.count(self.usage(output))
        if self._has_details:
            events = self._detailed_events(index, tokens, reason, output)
        else:
            text = "".join([token.text for token in tokens])
            choice = {"index": index, "text": text, "logprobs": None} | self._end(reason, output)
            events = [self._events.choice(choice)] if text or reason else []
        return events + self._events.end(lambda: self.usage(output)) if reason and output.finished else events

    def _detailed_events(
        self, index: int, tokens: list[Token], reason: str | None, output: GenerationOutput
    ) -> list[bytes]:
        parts = [Part(token.text, [token]) for token in tokens] or [Part("", [])]
        if self.asked.echo and index not in self._lengths:
            (text, first, *_), prompt = parts[0], output.request.prompt
            place = output.prompt_index
            prefill, cut = self.prefill(output, place), _may_be_cut(output, place)
            parts[0] = Part(prompt + text, first, prompt, prefill, cut)
        *parts, last = parts
        prompt_ids = output.request.prompt_ids
        written = [self._event(index, part, self._end(None, output), prompt_ids) for part in parts]
        written.append(self._event(index, last, self._end(reason, output), prompt_ids))
        return [event for event in written if event]

    def error(self, error: LmiError) -> list[bytes]:
        return error_events(error)

    def _end(self, reason: str | None, output: GenerationOutput) -> JsonObject:
        """Return the members of a choice about its end."""
        step = output.step
        if reason is None:
            return UNENDED
        return UNENDED | {
            "finish_reason": reason,
            "stop_reason": stop_reason(output.parameters, step.stop_sequence, step.tokens),
        }

    def _event(self, index: int, part: Part, end: JsonObject, prompt_ids: list[int]) -> bytes:
        """Return the event of a piece; b"" for one without text, token or finish reason to send."""
        length = self._lengths.get(index, 0)
        self._lengths[index] = length + len(part.text)
        shown = part.tokens or part.prefill
        ended = end["finish_reason"] is not None
        if not part.text and not ended and (not shown or (self.asked.log_probs is None and not self.asked.token_ids)):
            return b""
        log_probs = self.log_prob_lists(part.tokens, length, part.prompt, part.prefill, part.cut) if shown else None
        choice: JsonObject = {"index": index, "text": part.text, "logprobs": log_probs} | end
        if self.asked.token_ids:
            choice["token_ids"] = [token.id for token in part.tokens]
            if index not in self._begun:
                choice["prompt_token_ids"] = prompt_ids
                self._begun.add(index)
        return self._events.choice(choice)
