"""OpenAI's routes that list the served models."""

from typing import Any

import orjson

from lmi_core.calls.served_model import ManagedModel, ServedModels
from lmi_core.handler import Answer, Call


async def list_models(call: Call, dispatcher: ServedModels) -> Answer:
    data = [_described(model, name) for model in dispatcher.models.values() for name in model.names]
    return _answer({"object": "list", "data": data})


async def show_model(call: Call, dispatcher: ServedModels) -> Answer:
    """Answer with the model that the path names. Raise ModelNotFound where it is not served."""
    name = call.path_parameters["model"]
    return _answer(_described(dispatcher.find(name), name))


def _described(model: ManagedModel, name: str) -> dict[str, Any]:
    return {"id": name, "object": "model", "created": model.created, "owned_by": "lmi", "root": model.name}


def _answer(content: dict[str, Any]) -> Answer:
    return Answer(200, "application/json", orjson.dumps(content))
