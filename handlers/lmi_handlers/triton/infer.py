"""Parser of KServe's inference protocol (v2): tensors for a tensor backend, text for any other."""

from collections.abc import Mapping
from typing import Any

from lmi_core.errors import InvalidPayload
from lmi_core.generation.tensors import TensorBackend
from lmi_core.handler import Call, Generation
from lmi_core.inference import Inference, ResponseWriter
from lmi_core.served_model import ServedModel
from lmi_handlers.triton.generate import dropped_scalars, head, refuse_stream
from lmi_handlers.triton.infer_payload import InferRequest
from lmi_handlers.triton.payload import known_parameters
from lmi_handlers.triton.responses import InferWriter
from lmi_handlers.triton.text import text_generation


def infer(call: Call, model: ServedModel) -> Generation | Inference:
    """Return the generation or inference of a call. Raise InvalidPayload if a field is invalid."""
    request = InferRequest(call)
    return parsed(request, model, InferWriter(head(model, request.id), request))


def parsed(
    request: InferRequest, model: ServedModel, writer: ResponseWriter, *, streams: bool = False
) -> Generation | Inference:
    """Return the generation or inference of a request; `streams` allows several responses.

    Raise InvalidPayload if a field is invalid.
    """
    backend = model.backend
    if not isinstance(backend, TensorBackend) or "text_input" in request.inputs:
        return text_generation(request, model, writer, streams=streams)
    ignored = _ignored(request.parameters, model)
    request.check_outputs([output.name for output in backend.tensor_outputs])
    if not streams:
        refuse_stream(request.inputs)
    return Inference(request.inputs, writer, request.timeout, ignored)


def _ignored(parameters: Mapping[str, Any], model: ServedModel) -> tuple[str, ...]:
    """Return the names of unknown parameters, which are dropped. Raise InvalidPayload for others."""
    known = known_parameters(model.backend.parameters_type)
    ignored = () if model.options.strict_parameters else dropped_scalars(parameters, known)
    for name in parameters.keys() - set(ignored):
        raise InvalidPayload(f"`parameters.{name}` is not a parameter of this model, whose requests are tensors")
    return ignored
