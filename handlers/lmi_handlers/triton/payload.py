"""The request of Triton's generate extension."""

import re
from collections.abc import Mapping
from types import NoneType
from typing import Annotated, Any, Literal, get_args, get_origin

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field
from pydantic.fields import FieldInfo

from lmi_core.errors import InvalidPayload
from lmi_core.generation.parameters import ExtendedParameters, GenerationParameters
from lmi_core.payloads.payload import quote, read_object
from lmi_core.payloads.tolerant_payload import field_names
from lmi_handlers.fields.vocabulary import VLLM_NAMES, refuse_hidden_sequences, sample_if_given, translate
from lmi_handlers.triton.formatters import TritonFormatter, TritonStreamFormatter, TritonWholeEventFormatter

BOOLEANS = {"true": True, "false": False}
MAX_LENGTH = 64  # characters of a number

_INTEGER = re.compile(r"[+-]?\d+")
_NUMBER = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d{1,3})?")
# From names of parameters in TensorRT-LLM's and vLLM's Triton models to LMI's.
NAMES = {
    **VLLM_NAMES,
    "stop": "stop_sequences",
    "stop_words": "stop_sequences",
    "beam_width": "num_beams",
    "random_seed": "seed",
    "end_id": "stop_token_ids",
}
LISTS = frozenset({"stop_sequences", "bad_sequences", "stop_token_ids", "guided_choice"})
OUTPUTS = ("finish_reason", "cumulative_logprob", "logprobs", "num_input_tokens", "num_output_tokens")
LOG_PROBS = ("cum_log_probs", "output_log_probs")  # outputs of TensorRT-LLM that `return_log_probs` requests
TENSORS_ONLY = ("return_context_logits", "return_generation_logits")  # a text answer has no place for these
SAMPLING_PARAMETERS = "sampling_parameters"  # vLLM's object with parameters, or the same as a JSON string
EXCLUDE_INPUT = "exclude_input_in_output"


def read_written(values: Mapping[str, Any], fields: Mapping[str, FieldInfo]) -> dict[str, Any]:
    """Return the parameters with strings of numbers and booleans parsed.

    Strings for text fields and unknown fields stay unchanged.
    """
    written = {
        name: read_scalar(value)
        for name, value in values.items()
        if isinstance(value, str) and name in fields and not _takes_text(fields[name].annotation)
    }
    return {**values, **written}


def read_scalar(text: str) -> object:
    """Return the number or boolean in a text, otherwise the text itself."""
    stripped = text.strip()
    if stripped.lower() in BOOLEANS:
        return BOOLEANS[stripped.lower()]
    if len(stripped) > MAX_LENGTH or not stripped.isascii():
        return text
    if _INTEGER.fullmatch(stripped):
        return int(stripped)
    return float(stripped) if _NUMBER.fullmatch(stripped) else text


def _takes_text(annotation: object) -> bool:
    """Return whether a type accepts any string, also within a list; a Literal does not count."""
    if annotation in (str, Any):
        return True
    return get_origin(annotation) is not Literal and any(map(_takes_text, get_args(annotation)))


def _scalar(value: object) -> object:
    return value[0] if isinstance(value, list) and len(value) == 1 else value


OneText = Annotated[list[str], Field(min_length=1, max_length=1)]
Prompt = Annotated[str, Field(min_length=1)]


class TritonPayload(BaseModel):
    """A request's prompt, id and parameters; other properties count as parameters too."""

    model_config = ConfigDict(
        extra="allow",
        strict=True,
        json_schema_extra={
            "examples": [
                {"id": "42", "text_input": "client input", "parameters": {"stream": False, "temperature": 0}},
                {"text_input": "client input", "max_tokens": 20, "return_finish_reason": True},
            ]
        },
    )

    id: Annotated[str | None, BeforeValidator(_scalar, json_schema_input_type=str | OneText | None)] = Field(
        None, description="Returned in the answer."
    )
    text_input: Annotated[Prompt, BeforeValidator(_scalar, json_schema_input_type=Prompt | OneText)] = Field(
        description="The prompt."
    )
    parameters: dict[str, Any] = Field(
        default_factory=dict, description="Generation parameters, by LMI's names or those of Triton's LLM backends."
    )


def known_parameters(parameters_type: type[GenerationParameters]) -> frozenset[str]:
    """Return the names of parameters that are never dropped: those of backends and of the answer."""
    answer = {"stream", "pad_id", EXCLUDE_INPUT, SAMPLING_PARAMETERS, "return_log_probs", *TENSORS_ONLY}
    outputs = [f"return_{name}" for name in OUTPUTS]
    return field_names(parameters_type) | answer.union(ExtendedParameters.model_fields, NAMES, outputs)


class TritonParameters:
    """A payload's parameters by LMI's names, and the requested outputs and form of the answer."""

    def __init__(self, payload: TritonPayload, parameters_type: type[GenerationParameters]) -> None:
        """Read the payload for a backend with parameters of that type. Raise InvalidPayload for an invalid one."""
        given = _merge(_inner(payload.parameters), _inner(payload.model_extra or {}))
        self.stream = _flag(given, "stream", None)
        self.outputs = frozenset(name for name in OUTPUTS if _flag(given, f"return_{name}", False))
        if _flag(given, "return_log_probs", False):
            self.outputs |= {*LOG_PROBS}
        for name in TENSORS_ONLY:
            if _flag(given, name, False):
                raise InvalidPayload(f"`{name}` must be false, because the answer is text. Given: True")
        self._exclude_input = _flag(given, EXCLUDE_INPUT, None)
        given.pop("pad_id", None)  # only pads TensorRT-LLM's batches
        values, self.spellings = translate({name: _scalar(value) for name, value in given.items()}, NAMES)
        self.values = read_written(values, parameters_type.model_fields)
        for name in LISTS & self.values.keys():
            self.values[name] = _as_list(self.values[name])
        sample_if_given(self.values)

    def formatter_type(self, *, streams: bool, events: bool = False) -> type[TritonFormatter]:
        """Return the formatter of a call that may stream, by default if `events`. Raise InvalidPayload if it may not.

        The prompt comes before the text as in Triton's vLLM backend: unless excluded, and never in a stream.
        """
        if self.stream and not streams:
            raise InvalidPayload("`stream` must be false on this route: use generate_stream for streams. Given: True")
        streams = events if self.stream is None else self.stream
        if streams and self._exclude_input is False:
            raise InvalidPayload(f"`{EXCLUDE_INPUT}` must be true in a stream, which has no place for it. Given: False")
        self.values.setdefault("return_full_text", not streams and not self._exclude_input)
        if streams:
            refuse_hidden_sequences(self.values, self.spellings)
            return TritonStreamFormatter
        return TritonWholeEventFormatter if events else TritonFormatter

    @property
    def num_answers(self) -> int:
        count = self.values.get("n", 1)
        return count if isinstance(count, int) else 1


def _merge(parameters: dict[str, Any], properties: dict[str, Any]) -> dict[str, Any]:
    """Merge parameters from both places. Raise InvalidPayload if a name has different values."""
    for name in parameters.keys() & properties.keys():
        if repr(_scalar(parameters[name])) != repr(_scalar(properties[name])):  # 1 is not true
            raise InvalidPayload(f"`{name}` is given twice, in `parameters` and next to it")
    return parameters | properties


def _inner(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parameters, including those inside vLLM's `sampling_parameters`."""
    outer = dict(parameters)
    box = _scalar(outer.pop(SAMPLING_PARAMETERS, None))
    if isinstance(box, str):
        box = read_object(box.encode(), f"`{SAMPLING_PARAMETERS}`")
    if not isinstance(box, (dict, NoneType)):
        raise InvalidPayload(f"`{SAMPLING_PARAMETERS}` must be an object. Given: {quote(box)}")
    return _merge(outer, box or {})


def _flag(given: dict[str, Any], name: str, default: bool | None) -> bool | None:
    """Remove and return a boolean that concerns the answer, not the generation."""
    value = _scalar(given.pop(name, default))
    value = read_scalar(value) if isinstance(value, str) else value
    if not isinstance(value, (bool, NoneType)):
        raise InvalidPayload(f"`{name}` must be a valid boolean. Given: {quote(value)}")
    return value


def _as_list(value: object) -> object:
    """Return a value from TensorRT-LLM's clients as a list: a single item is wrapped, "" becomes None."""
    if value == "":
        return None
    return value if isinstance(value, list) else [value]
