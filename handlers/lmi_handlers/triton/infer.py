"""Parser of KServe's inference protocol (v2): tensors for a tensor backend, text for any other."""

from lmi_core.calls.served_model import ServedModel
from lmi_core.errors import InvalidPayload
from lmi_core.handler import Call, Generation
from lmi_core.inference import Inference
from lmi_core.tensors import TensorBackend
from lmi_handlers.triton.generate import head, refuse_stream
from lmi_handlers.triton.infer_payload import InferRequest
from lmi_handlers.triton.responses import InferWriter
from lmi_handlers.triton.text import text_generation


def infer(call: Call, model: ServedModel) -> Generation | Inference:
    """Return the generation or inference of a call. Raise InvalidPayload where a field is not valid."""
    request = InferRequest(call)
    backend = model.backend
    if not isinstance(backend, TensorBackend) or "text_input" in request.inputs:
        return text_generation(request, model)
    for name in request.parameters:
        raise InvalidPayload(f"`parameters.{name}` is not a parameter of this model, whose requests are tensors")
    request.check_outputs([output.name for output in backend.tensor_outputs])
    refuse_stream(request.inputs)
    return Inference(request.inputs, InferWriter(head(model, request.id), request), request.timeout)
