"""The list of models that are served here, and of their adapters, in OpenAI's form as vLLM's server has it.

Anthropic's clients get theirs.
"""

from collections import Counter
from pathlib import PurePath
from typing import Any

import orjson

from lmi_core.calls.served_model import ManagedModel, ServedModels
from lmi_core.errors import ModelNotFound
from lmi_core.handler import Answer, Call
from lmi_handlers.anthropic import models as anthropic


async def list_models(call: Call, dispatcher: ServedModels) -> Answer:
    models = dispatcher.models.values()
    own = [(model, name) for model in models for name in model.names]
    taken = Counter(name for model in models for name in (*model.names, *model.adapter_names))
    adapters = [
        (model, name) for model in models for name in model.adapter_names if taken[name] == 1
    ]  # those that mean one thing
    served = own + adapters
    if anthropic.is_anthropic(call):
        return anthropic.page_of_models(call, served, {name: _longest(model) for model, name in served})
    return _answer({"object": "list", "data": [_described(model, name) for model, name in served]})


async def show_model(call: Call, dispatcher: ServedModels) -> Answer:
    """Answer with the model that the path names. Raise ModelNotFound where it is not served."""
    name = call.path_parameters["model"]
    if not anthropic.is_anthropic(call):
        return _answer(_described(dispatcher.find_with_adapters(name), name))
    try:
        model = dispatcher.find_with_adapters(name)
    except ModelNotFound as error:
        return anthropic.failed(call, error)
    return anthropic.one_model(call, model, name, _longest(model))


def _described(model: ManagedModel, name: str) -> dict[str, Any]:
    is_adapter = name not in model.names
    return {
        "id": name,
        "object": "model",
        "created": model.created,
        "owned_by": "lmi",
        # Of an adapter the folder's name, not its path: who may not manage adapters is not told where they lie.
        "root": PurePath(model.adapters.folder(name)).name if is_adapter else model.name,
        "parent": model.names[0] if is_adapter else None,
        "max_model_len": _longest(model),
    }


def _longest(model: ManagedModel) -> int | None:
    """Return the bound on a prompt and its answer, in tokens; None while the model loads, or where there is none."""
    return getattr(model.backend, "max_length", None) if model.generates else None


def _answer(content: dict[str, Any]) -> Answer:
    return Answer(200, "application/json", orjson.dumps(content))
