"""Text generation over tensors, with the tensor names of Triton's LLM models."""

from collections.abc import Callable
from typing import Any, ClassVar

import orjson

from lmi_core.calls.served_model import ServedModel
from lmi_core.errors import InvalidPayload, LmiError
from lmi_core.formatter import OutputFormatter, joined
from lmi_core.generation import GenerationOutput
from lmi_core.handler import Generation
from lmi_core.payloads.payload import check_payload
from lmi_core.tensors import Tensor, TensorSpecification, TensorType
from lmi_handlers.triton.formatters import TritonFormatter
from lmi_handlers.triton.generate import head, text_request
from lmi_handlers.triton.infer_payload import InferRequest
from lmi_handlers.triton.payload import LOG_PROBS, OUTPUTS, TritonParameters, TritonPayload
from lmi_handlers.triton.responses import InferWriter
from lmi_handlers.triton.tensors import from_json

INPUTS: dict[str, TensorType] = {
    "max_tokens": "INT32",
    "min_tokens": "INT32",
    "temperature": "FP32",
    "top_k": "INT32",
    "top_p": "FP32",
    "repetition_penalty": "FP32",
    "presence_penalty": "FP32",
    "frequency_penalty": "FP32",
    "length_penalty": "FP32",
    "no_repeat_ngram_size": "INT32",
    "random_seed": "UINT64",
    "beam_width": "INT32",
    "n": "INT32",
    "bad_words": "BYTES",
    "stop_words": "BYTES",
    "end_id": "INT32",
    "ignore_eos": "BOOL",
}
ANSWER_INPUTS: dict[str, TensorType] = {
    "pad_id": "INT32",
    "stream": "BOOL",
    "exclude_input_in_output": "BOOL",
    "return_log_probs": "BOOL",
    **{f"return_{name}": "BOOL" for name in OUTPUTS},
}
OUTPUT_TYPES: dict[str, TensorType] = {
    "text_output": "BYTES",
    "finish_reason": "BYTES",
    "cumulative_logprob": "FP32",
    "logprobs": "BYTES",
    "num_input_tokens": "UINT32",
    "num_output_tokens": "UINT32",
    "cum_log_probs": "FP32",
    "output_log_probs": "FP32",
}
TEXTS = {"bad_words", "stop_words"}
TEXT_OUTPUTS = tuple(
    TensorSpecification(name, dtype, (-1, -1) if name == "output_log_probs" else (-1,))
    for name, dtype in OUTPUT_TYPES.items()
)


def text_inputs(takes: Callable[[str], bool]) -> tuple[TensorSpecification, ...]:
    """Return the input tensors; `takes` returns whether the backend has the parameter of a Triton name."""
    optional = {name: dtype for name, dtype in INPUTS.items() if takes(name)} | ANSWER_INPUTS
    shapes = {name: (-1,) if name in TEXTS else (1,) for name in optional}
    return (
        TensorSpecification("text_input", "BYTES", (1,)),
        *(TensorSpecification(name, dtype, shapes[name], optional=True) for name, dtype in optional.items()),
    )


def text_generation(request: InferRequest, model: ServedModel) -> Generation:
    """Return the generation of a request. Raise InvalidPayload where a tensor is not valid."""
    values = {name: _values(name, tensor) for name, tensor in request.inputs.items()}
    payload = check_payload(values | {"parameters": request.parameters}, TritonPayload)
    parameters = TritonParameters(payload)
    if parameters.stream:
        raise InvalidPayload("`stream` must be false on this route: use generate_stream for streams. Given: True")
    request.check_outputs(OUTPUT_TYPES)
    outputs = parameters.outputs | (OUTPUT_TYPES.keys() & (request.outputs or {}).keys())
    inner = TritonFormatter({}, outputs, parameters.num_answers)
    formatter = TextInferFormatter(inner, InferWriter(head(model, request.id), request))
    return Generation((text_request(payload, parameters),), formatter, request.timeout, strict=True)


class TextInferFormatter(OutputFormatter):
    """Output formatter that turns the generate extension's answer into tensors."""

    name: ClassVar[str] = "triton_infer"

    def __init__(self, inner: TritonFormatter, writer: InferWriter) -> None:
        self._inner = inner
        self._writer = writer
        self.content_type = writer.content_type

    def format(self, output: GenerationOutput) -> bytes:
        answer = joined(self._inner.format(output))
        if not answer:
            return b""
        data = self._writer.write({name: _tensor(name, value) for name, value in orjson.loads(answer).items()})
        self.content_type, self.headers = self._writer.content_type, self._writer.headers
        return data

    def error(self, error: LmiError) -> bytes:
        return self._writer.error(error)


def _tensor(name: str, value: Any) -> Tensor:
    """Return the tensor of an output: an element per sequence, or a zero-padded row of log probabilities."""
    values = value if isinstance(value, list) else [value]
    if name != LOG_PROBS[1]:
        return from_json(name, OUTPUT_TYPES[name], (len(values),), values)
    rows = values if values and isinstance(values[0], list) else [values]
    longest = max(len(row) for row in rows)
    padded = [[each or 0.0 for each in row] + [0.0] * (longest - len(row)) for row in rows]
    return from_json(name, OUTPUT_TYPES[name], (len(rows), longest), padded)


def _values(name: str, tensor: Tensor) -> list[Any]:
    values = tensor.array().ravel().tolist()
    if tensor.dtype != "BYTES":
        return list(values)
    try:
        return [element.decode() for element in values]
    except UnicodeDecodeError as error:
        raise InvalidPayload(f"`{name}` must be valid UTF-8: {error}") from None
