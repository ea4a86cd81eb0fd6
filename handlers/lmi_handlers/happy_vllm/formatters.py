"""Output formatters of happy_vllm: an object of lists with an item per sequence, or a line with one for each step."""

from typing import Any, ClassVar

import orjson

from lmi_core.errors import LmiError
from lmi_core.formatter import OutputFormatter
from lmi_core.generation.output import GeneratedSequence, GenerationOutput, Token
from lmi_core.generation.parameters import GenerationParameters
from lmi_core.payloads.json_list import join_items, json_list
from lmi_handlers.fields import vllm_schema

# Limits a stream in which every line repeats the previous ones, because its size grows quadratically
BYTES_PER_TOKEN = 16_384


class HappyVllmFormatter(OutputFormatter):
    name: ClassVar[str] = "happy_vllm"
    content_type = "application/json"

    def __init__(self, count: int, prompt: bool, logprobs: bool, prompt_logprobs: bool) -> None:
        self._count = count  # number of sequences in the answer
        self._prompt = prompt
        self._logprobs = logprobs
        self._prompt_logprobs = prompt_logprobs

    def format(self, output: GenerationOutput) -> bytes:
        return orjson.dumps(self.answer(output)) if output.finished else b""

    def error(self, error: LmiError) -> bytes:
        return orjson.dumps({"detail": error.message})

    def reads_log_probs(self, parameters: GenerationParameters) -> bool:
        return self._logprobs

    def reads_ranks(self, parameters: GenerationParameters) -> bool:
        return self._logprobs

    def answer(self, output: GenerationOutput) -> dict[str, Any]:
        """Return the answer with everything generated so far."""
        sequences = output.best_sequences(self._count)
        answer: dict[str, Any] = {
            "responses": [sequence.text for sequence in sequences],
            "finish_reasons": [vllm_schema.FINISH_REASONS[sequence.finish_reason] for sequence in sequences],
            "usages": [_usage(output, sequence) for sequence in sequences],
        }
        if self._prompt:
            answer["prompt"] = output.request.prompt
        if self._logprobs:
            answer["logprobs"] = [self._log_probs(sequence.tokens) for sequence in sequences]
        if self._prompt_logprobs:
            answer["prompt_logprobs"] = self._log_probs(output.prefill[0] or [])
        return answer

    def _log_probs(self, tokens: list[Token]) -> orjson.Fragment:
        return json_list(place for token in tokens for place in vllm_schema.logprobs([token]))


class HappyVllmStreamFormatter(HappyVllmFormatter):
    """JSON lines, each with the whole text so far: one for each step, and for several steps once the lines are long."""

    name: ClassVar[str] = "happy_vllm_stream"
    content_type = "application/jsonlines"

    def __init__(self, count: int, prompt: bool, logprobs: bool, prompt_logprobs: bool) -> None:
        super().__init__(count, prompt, logprobs, prompt_logprobs)
        self._line_length = 0  # of the last line
        self._num_tokens = 0  # generated since then
        self._encoded: dict[int, list[bytes]] = {}  # the log probs written so far, by the id of the token list

    def format(self, output: GenerationOutput) -> bytes:
        if not output.step.tokens and output.step.finish_reason is None:
            return b""
        self._num_tokens += len(output.step.tokens)
        if self._num_tokens * BYTES_PER_TOKEN < self._line_length and not output.finished:
            return b""
        line = orjson.dumps(self.answer(output), option=orjson.OPT_APPEND_NEWLINE)
        self._line_length, self._num_tokens = len(line), 0
        return line

    def _log_probs(self, tokens: list[Token]) -> orjson.Fragment:
        """Return the tokens' log probs as JSON, encoding only the new ones."""
        encoded = self._encoded.setdefault(id(tokens), [])
        for token in tokens[len(encoded) :]:
            encoded += map(orjson.dumps, vllm_schema.logprobs([token]))
        return join_items(encoded)

    def error(self, error: LmiError) -> bytes:
        return super().error(error) + b"\n"


def _usage(output: GenerationOutput, sequence: GeneratedSequence) -> dict[str, int]:
    prompt, completion = len(output.request.prompt_ids), len(sequence.tokens)
    return {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}
