"""Models for the routes that ask about one without generating."""

from collections.abc import Iterator
from contextlib import contextmanager

from lmi_core.errors import ModelNotFound
from lmi_core.handler import Call
from lmi_core.serving.dispatcher import Dispatcher
from lmi_core.serving.model import Model
from lmi_handlers.lmi.handler import TARGET_MODEL_HEADER


@contextmanager
def generating_model(call: Call, dispatcher: Dispatcher, name: str | None = None) -> Iterator[Model]:
    """The one that the header or the name means, admitted like a request.

    Raises ModelNotFound also for a model that its own `handle` function serves: it has no tokenizer here.
    """
    model = dispatcher.find(call.headers.get(TARGET_MODEL_HEADER) or name)
    with dispatcher.admit(model):
        if not hasattr(model.backend, "tokenizer"):
            raise ModelNotFound(f"model `{model.name}` has no tokenizer here: its own `handle` function answers")
        yield model
