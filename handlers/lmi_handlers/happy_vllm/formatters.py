"""Output formatters of happy_vllm: an object of lists with an item per sequence, or a line with one for each step."""

from typing import Any, ClassVar

import orjson

from lmi_core.errors import LmiError
from lmi_core.formatter import OutputFormatter
from lmi_core.generation import GeneratedSequence, GenerationOutput
from lmi_core.parameters import GenerationParameters
from lmi_handlers.fields import vllm_schema


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
            answer["logprobs"] = [vllm_schema.logprobs(sequence.tokens) for sequence in sequences]
        if self._prompt_logprobs:
            answer["prompt_logprobs"] = vllm_schema.logprobs(output.prefill[0] or [])
        return answer


class HappyVllmStreamFormatter(HappyVllmFormatter):
    """JSON lines, one for each step, each with the whole text so far."""

    name: ClassVar[str] = "happy_vllm_stream"
    content_type = "application/jsonlines"

    def format(self, output: GenerationOutput) -> bytes:
        if not output.step.tokens and output.step.finish_reason is None:
            return b""
        return orjson.dumps(self.answer(output), option=orjson.OPT_APPEND_NEWLINE)

    def error(self, error: LmiError) -> bytes:
        return super().error(error) + b"\n"


def _usage(output: GenerationOutput, sequence: GeneratedSequence) -> dict[str, int]:
    prompt, completion = len(output.request.prompt_ids), len(sequence.tokens)
    return {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}
