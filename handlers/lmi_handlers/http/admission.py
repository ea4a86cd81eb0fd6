"""Models for the routes that ask about one without generating."""

from collections.abc import Iterator
from contextlib import contextmanager

from lmi_core.calls.served_model import ManagedModel, ServedModels
from lmi_core.errors import ModelNotFound
from lmi_core.handler import Call
from lmi_handlers.lmi.handler import TARGET_MODEL_HEADER


@contextmanager
def generating_model(call: Call, dispatcher: ServedModels, name: str | None = None) -> Iterator[ManagedModel]:
    """Admit a question about a model like a request: the model that the header or the name means.

    Raise ModelNotFound also for a model that its model function serves, which has no tokenizer here.
    """
    model = dispatcher.find(call.headers.get(TARGET_MODEL_HEADER) or name)
    with dispatcher.admit(model):
        if not model.generates or not hasattr(model.backend, "tokenizer"):
            raise ModelNotFound(f"model `{model.name}` has no tokenizer here: its model function answers")
        yield model
