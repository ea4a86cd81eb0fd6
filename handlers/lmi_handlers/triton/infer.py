"""Parser of KServe's inference protocol (v2): tensors for a tensor backend, texts for any other."""

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from lmi_core.errors import InvalidPayload, LmiError
from lmi_core.formatter import OutputFormatter
from lmi_core.generation.output import GenerationOutput
from lmi_core.generation.parameters import GenerationParameters
from lmi_core.generation.tensors import Tensor, TensorBackend, TensorSpecification, TensorType
from lmi_core.handler import Call, Generation
from lmi_core.inference import Inference, ResponseWriter
from lmi_core.payloads.payload import check_payload
from lmi_core.served_model import ServedModel
from lmi_handlers.triton.formatters import TritonFormatter
from lmi_handlers.triton.generate import head, refuse_stream, text_request, unknown_scalars
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
    """Return the input tensors; `takes` returns whether the backend supports the parameter of a Triton name."""
    optional = {name: dtype for name, dtype in INPUTS.items() if takes(name)} | ANSWER_INPUTS
    shapes = {name: (-1,) if name in TEXTS else (1,) for name in optional}
    return (
        TensorSpecification("text_input", "BYTES", (1,)),
        *(TensorSpecification(name, dtype, shapes[name], optional=True) for name, dtype in optional.items()),
    )


def text_generation(
    request: InferRequest, model: ServedModel, writer: ResponseWriter, *, streams: bool = False
) -> Generation:
    """Return the generation of a request; `streams` allows several responses.

    Raise InvalidPayload if a tensor is invalid.
    """
    parameters_type = model.backend.parameters_type
    ignored = unknown_scalars(request.parameters, model)
    given = {name: value for name, value in request.parameters.items() if name not in ignored}
    payloads = [check_payload(row | {"parameters": given}, TritonPayload) for row in _rows(request.inputs)]
    rows = [(payload, TritonParameters(payload, parameters_type)) for payload in payloads]
    parameters = rows[0][1]
    request.check_outputs(OUTPUT_TYPES)
    if parameters.stream and len(rows) > 1:
        raise InvalidPayload(f"`text_input` must be a single text in a stream. Given: {len(rows)}")
    outputs = parameters.outputs | (OUTPUT_TYPES.keys() & (request.outputs or {}).keys())
    formatters = [each.formatter_type(streams=streams) for _, each in rows]
    inner = formatters[0]({}, outputs, parameters.num_answers)
    requests = tuple(text_request(payload, each) for payload, each in rows)
    return Generation(requests, TextInferFormatter(inner, writer), request.timeout, ignored, strict=True)


def _rows(inputs: Mapping[str, Tensor]) -> list[dict[str, Any]]:
    """Return the values of each text of a batch, whose tensors have a row for each; other tensors are for all texts."""
    values = {name: _values(name, tensor) for name, tensor in inputs.items()}
    count = len(values.get("text_input", ())) or 1
    batched = [name for name, tensor in inputs.items() if len(tensor.shape) == 2 and tensor.shape[0] == count > 1]
    lengths = {name: len(values[name]) // count for name in batched}
    return [
        values | {name: values[name][row * length : (row + 1) * length] for name, length in lengths.items()}
        for row in range(count)
    ]


class TextInferFormatter(OutputFormatter):
    """An output formatter that turns the generate extension's answer into tensors."""

    name: ClassVar[str] = "triton_infer"

    def __init__(self, inner: TritonFormatter, writer: ResponseWriter) -> None:
        self.inner = inner
        self._writer = writer
        self.content_type = writer.content_type

    def tensors(self, output: GenerationOutput) -> dict[str, Tensor] | None:
        """Return the tensors of the answer after the latest generation step; None if there are none yet."""
        answer = self.inner.latest(output)
        return None if answer is None else {name: _tensor(name, value) for name, value in answer.items()}

    def format(self, output: GenerationOutput) -> bytes:
        tensors = self.tensors(output)
        if tensors is None:
            return b""
        data = self._writer.write(tensors)
        self.content_type, self.headers = self._writer.content_type, self._writer.headers
        return data

    def reads_ranks(self, parameters: GenerationParameters) -> bool:
        return self.inner.reads_ranks(parameters)

    def error(self, error: LmiError) -> bytes | list[bytes]:
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


def infer(call: Call, model: ServedModel) -> Generation | Inference:
    """Return the generation or inference of a call. Raise InvalidPayload if a field is invalid."""
    request = InferRequest(call)
    return parse_infer(request, model, InferWriter(head(model, request.id), request))


def parse_infer(
    request: InferRequest, model: ServedModel, writer: ResponseWriter, *, streams: bool = False
) -> Generation | Inference:
    """Return the generation or inference of a request; `streams` allows several responses.

    Raise InvalidPayload if a field is invalid.
    """
    backend = model.backend
    if not isinstance(backend, TensorBackend) or "text_input" in request.inputs:
        return text_generation(request, model, writer, streams=streams)
    ignored = unknown_scalars(request.parameters, model)
    for name in request.parameters.keys() - set(ignored):
        raise InvalidPayload(f"`parameters.{name}` is not a parameter of this model, whose requests are tensors")
    request.check_outputs([output.name for output in backend.tensor_outputs])
    if not streams:
        refuse_stream(request.inputs)
    return Inference(request.inputs, writer, request.timeout, ignored)
