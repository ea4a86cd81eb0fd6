"""Parser of Triton's generate extension, for a text or, with a tensor backend, tensors by name."""

from collections.abc import Mapping
from typing import Any

from lmi_core.errors import InvalidPayload
from lmi_core.errors.did_you_mean import did_you_mean
from lmi_core.generation.request import GenerationRequest
from lmi_core.generation.tensors import Tensor, TensorBackend, TensorSpecification
from lmi_core.handler import Call, Generation
from lmi_core.inference import Inference
from lmi_core.payloads.payload import check_payload, quote
from lmi_core.payloads.tolerant_payload import field_names, refusal_advice
from lmi_core.served_model import ServedModel
from lmi_handlers.triton.payload import TritonParameters, TritonPayload, known_parameters
from lmi_handlers.triton.responses import GenerateStreamWriter, GenerateWriter
from lmi_handlers.triton.tensors import fit

STREAMING = "streaming"  # TensorRT-LLM's tensor that requests several responses
VERSION = "1"  # the default version of a model


def generate(call: Call, model: ServedModel) -> Generation | Inference:
    """Return the generation or inference of a call. Raise InvalidPayload if a field is invalid."""
    body = call.json_object()
    streams = call.path.endswith("/generate_stream")
    if isinstance(model.backend, TensorBackend) and "text_input" not in body:
        return _of_tensors(dict(body), model, model.backend.tensor_inputs, streams)
    payload = check_payload(body, TritonPayload)
    parameters = TritonParameters(payload, model.backend.parameters_type)
    form = parameters.formatter_type(streams=streams, events=streams)
    formatter = form(head(model, payload.id), parameters.outputs, parameters.num_answers)
    # Triton would treat an unknown list or object as a tensor, and refuse it.
    unknown = parameters.values.keys() - field_names(model.backend.parameters_type)
    strict = any(not is_scalar(parameters.values[name]) for name in unknown)
    return Generation((text_request(payload, parameters),), formatter, strict=strict)


def text_request(payload: TritonPayload, parameters: TritonParameters) -> GenerationRequest:
    names = parameters.spellings | {"inputs": "text_input"}
    return GenerationRequest(payload.text_input, parameters.values, names=names, fits_context=True)


def is_scalar(value: object) -> bool:
    """Return whether Triton treats a value without a tensor of its name as a parameter."""
    return isinstance(value, str | int | float)


def head(model: ServedModel, request_id: str | None) -> dict[str, str]:
    """Return the first members of every answer: the request's id, the model's name and version."""
    served = {"model_name": model.name, "model_version": version_of(model)}
    return {"id": request_id} | served if request_id else served


def version_of(model: ServedModel) -> str:
    """Return the model's version, which the protocol requires."""
    return model.version or VERSION


def refuse_stream(inputs: Mapping[str, Tensor]) -> None:
    """Raise InvalidPayload if the flag for streaming is true. The backend refuses values that are not flags."""
    if STREAMING in inputs and (inputs[STREAMING].dtype, inputs[STREAMING].data) == ("BOOL", b"\x01"):
        raise InvalidPayload(f"`{STREAMING}` must be false on this route: use generate_stream for streams. Given: True")


def _of_tensors(
    body: dict[str, Any], model: ServedModel, specifications: tuple[TensorSpecification, ...], streams: bool
) -> Inference:
    request_id = body.pop("id", None)
    if not isinstance(request_id, str | None):
        raise InvalidPayload(f"`id` must be a valid string. Given: {quote(request_id)}")
    known = {each.name: each for each in specifications}
    values = _values(body)
    ignored = unknown_scalars(values, model, *known)
    inputs: dict[str, Tensor] = {}
    for name, value in values.items():
        if name not in ignored and name not in known:
            raise InvalidPayload(f"`{name}` is not a tensor of this model.{did_you_mean(name, known)}")
        if name not in ignored:
            inputs[name] = fit(known[name], value)
    if not streams:
        refuse_stream(inputs)
    writer = GenerateStreamWriter if streams else GenerateWriter
    return Inference(inputs, writer(head(model, request_id)), ignored=ignored)


def unknown_scalars(values: Mapping[str, Any], model: ServedModel, *tensors: str) -> tuple[str, ...]:
    """Return the names of scalars to drop: neither parameters nor `tensors`; none if parameters are strict.

    Raise InvalidPayload if that would change the answer.
    """
    if model.options.strict_parameters:
        return ()
    known = known_parameters(model.backend.parameters_type).union(tensors)
    names = tuple(name for name, value in values.items() if name not in known and is_scalar(value))
    for name in names:
        if instead := refusal_advice(name):
            raise InvalidPayload(f"`{name}` is not a parameter of this request: {instead}")
    return names


def _values(body: dict[str, Any]) -> dict[str, Any]:
    """Return the values in the body and its `parameters`, without nulls."""
    parameters = body.pop("parameters", {})
    if not isinstance(parameters, dict):
        raise InvalidPayload(f"`parameters` must be a valid dictionary. Given: {quote(parameters)}")
    for name in parameters.keys() & body.keys():
        raise InvalidPayload(f"`{name}` is given twice, in `parameters` and next to it")
    return {name: value for name, value in (parameters | body).items() if value is not None}
