"""Admission of calls that use a model without generating, such as tokenizer routes."""

from collections.abc import Iterator
from contextlib import contextmanager

from lmi_core.calls.served_model import ManagedModel, ServedModels
from lmi_core.errors import ModelNotFound
from lmi_core.handler import Call
from lmi_handlers.lmi.handler import TARGET_MODEL_HEADER


@contextmanager
def generating_model(call: Call, dispatcher: ServedModels, name: str | None = None) -> Iterator[ManagedModel]:
    """Admit a call like a generating one and yield its model, which `name` or a header names.

    Raise ModelNotFound also for a model with a model function, as it has no tokenizer.
    """
    model = dispatcher.find(call.headers.get(TARGET_MODEL_HEADER) or name)
    with dispatcher.admit(model):
        check_tokenizer(model)
        yield model


def check_tokenizer(model: ManagedModel) -> None:
    """Raise ModelNotFound for a model that has no tokenizer here, although it is loaded."""
    if not model.generates or not hasattr(model.backend, "tokenizer"):
        raise ModelNotFound(f"model `{model.name}` has no tokenizer: its model function answers requests")
