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
    """Admit a call like a generating one and yield its model, which `name` or a header names.

    Raise ModelNotFound also for a model with a model function, as it has no tokenizer.
    """
    model = dispatcher.find(call.headers.get(TARGET_MODEL_HEADER) or name)
    with dispatcher.admit(model):
        await dispatcher.wake(model)
        check_tokenizer(model)
        yield model


def described_model(call: Call, dispatcher: ServedModels) -> ManagedModel:
    """Return the model that a header names, or the only one, for a call that only reads what is known of it.

    It takes no place in the queue. Raise ModelNotReady until it is loaded, or ModelNotFound as `generating_model` does.
    """
    model = dispatcher.find(call.headers.get(TARGET_MODEL_HEADER))
    if not model.ready:
        raise ModelNotReady(f"model {model.name} is not ready")
    check_tokenizer(model)
    return model


def check_tokenizer(model: ManagedModel) -> None:
    """Raise ModelNotFound for a model that has no tokenizer here, although it is loaded."""
    if not model.generates or not hasattr(model.backend, "tokenizer"):
        raise ModelNotFound(f"model `{model.name}` has no tokenizer: its model function answers requests")
