"""OpenAI's list of models: those that are served here."""

from typing import Any

import orjson

from lmi_core.dispatcher import Dispatcher
from lmi_core.handler import Answer, Call
from lmi_core.model import Model


async def list_models(call: Call, dispatcher: Dispatcher) -> Answer:
    return _answer({"object": "list", "data": [_described(model) for model in dispatcher.models.values()]})


async def show_model(call: Call, dispatcher: Dispatcher) -> Answer:
    """Raises ModelNotFound."""
    return _answer(_described(dispatcher.find(call.path_parameters["model"])))


def _described(model: Model) -> dict[str, Any]:
    return {"id": model.name, "object": "model", "created": model.created, "owned_by": "lmi"}


def _answer(content: dict[str, Any]) -> Answer:
    return Answer(200, "application/json", orjson.dumps(content))
