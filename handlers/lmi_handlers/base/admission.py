"""Admission of calls that use a model without generating, such as tokenizer routes."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from lmi_core.errors import ModelNotFound, ModelNotReady
from lmi_core.handler import Call
from lmi_core.served_model import ManagedModel, ServedModels
from lmi_handlers.base.sagemaker_headers import TARGET_MODEL_HEADER


@asynccontextmanager
async def generating_model(
    call: Call, dispatcher: ServedModels, name: str | None = None
) -> AsyncIterator[ManagedModel]:
    """Admit a call like a generating one and yield its model, named by `name` or a header.

    Raise ModelNotFound for an unknown model, and for a model function, which has no tokenizer.
    """
    name = call.headers.get(TARGET_MODEL_HEADER) or name
    model = dispatcher.find(name)
    while await dispatcher.bridge(model):
        model = dispatcher.find(name)
    with dispatcher.admit(model):
        await dispatcher.wake(model)
        check_tokenizer(model)
        yield model


def described_model(call: Call, dispatcher: ServedModels) -> ManagedModel:
    """Return the model named by a header, or the only one, for a call that only describes it.

    The call takes no place in the queue. Raise ModelNotReady until it is loaded, or ModelNotFound like
    `generating_model`.
    """
    model = dispatcher.find(call.headers.get(TARGET_MODEL_HEADER))
    if not model.ready:
        raise ModelNotReady(f"model {model.name} is not ready")
    check_tokenizer(model)
    return model


def check_tokenizer(model: ManagedModel) -> None:
    """Raise ModelNotFound for a loaded model without a tokenizer."""
    if not model.generates or not hasattr(model.backend, "tokenizer"):
        raise ModelNotFound(f"model `{model.name}` has no tokenizer: its model function answers requests")
