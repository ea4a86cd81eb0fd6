"""LMI's dynamic-batch schema, whole and streamed, for calls of one or several prompts."""

from typing import Any, ClassVar

import orjson

from lmi_core.errors import LmiError
from lmi_core.formatter import AnswerSchema, OutputFormatter, Variant
from lmi_core.generation.output import GenerationOutput


def error_object(error: LmiError) -> dict[str, Any]:
    return {"code": 424, "message": "invoke handler failure", "error": error.message}


def prompt_head(output: GenerationOutput, prompt_index: int) -> str:
    """Return the text before a prompt's generated text: the prompt if `return_full_text`, otherwise ""."""
    request = output.requests[prompt_index]
    return request.prompt if request.parameters.return_full_text else ""


class DynamicJsonFormatter(OutputFormatter):
    """A formatter that writes a list with an object for each prompt, in order."""

    name: ClassVar[str] = "dynamic_json"
    variant = Variant("json", AnswerSchema.DYNAMIC_BATCH)
    content_type = "application/json"
    text_path: tuple[str, ...] = ("generated_text",)

    def format(self, output: GenerationOutput) -> bytes:
        if not output.finished:
            return b""
        best = [output.best_sequences(1, place)[0] for place in range(len(output.requests))]
        texts = [prompt_head(output, place) + sequence.text for place, sequence in enumerate(best)]
        return orjson.dumps([{"generated_text": text} for text in texts])

    def error(self, error: LmiError) -> bytes:
        return orjson.dumps(error_object(error))


class DynamicJsonLinesFormatter(OutputFormatter):
    """A formatter that writes a line per step of the batch, with each prompt's new text ("" after its end)."""

    name: ClassVar[str] = "dynamic_jsonlines"
    variant = Variant("jsonlines", AnswerSchema.DYNAMIC_BATCH)
    one_sequence = True
    content_type = "application/jsonlines"
    text_path: tuple[str, ...] = ("outputs",)

    def __init__(self) -> None:
        self._line: dict[int, str] = {}  # each prompt's new text since the last line
        self._begun: set[int] = set()

    def format(self, output: GenerationOutput) -> list[bytes]:
        place = output.prompt_index
        lines = [self._flush(output)] if place in self._line else []
        text = "".join([token.text for token in output.step.tokens])
        self._line[place] = text if place in self._begun else prompt_head(output, place) + text
        self._begun.add(place)
        unfinished = {i for i, sequence in enumerate(output.sequences) if sequence.finish_reason is None}
        return lines if unfinished - self._line.keys() else [*lines, self._flush(output)]

    def error(self, error: LmiError) -> bytes:
        return orjson.dumps(error_object(error), option=orjson.OPT_APPEND_NEWLINE)

    def _flush(self, output: GenerationOutput) -> bytes:
        texts = [self._line.get(place, "") for place in range(len(output.requests))]
        self._line.clear()
        return orjson.dumps({"outputs": texts}, option=orjson.OPT_APPEND_NEWLINE)
