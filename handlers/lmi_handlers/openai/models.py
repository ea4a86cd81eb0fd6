"""The list of served models and their adapters, in OpenAI's form with vLLM's members.

Anthropic's clients get Anthropic's form.
"""

import re
from collections import Counter
from pathlib import PurePath
from typing import Any

from lmi_core.calls.answer import json_answer
from lmi_core.calls.answer_form import failures
from lmi_core.errors import ModelNotFound
from lmi_core.handler import Answer, AnswerForm, Call
from lmi_core.host.pauses import with_pauses
from lmi_core.served_model import ManagedModel, ServedModels
from lmi_core.serving.capabilities import known_capabilities
from lmi_handlers.answers.openai import STATUSES, OpenAiError, OpenAiModel, OpenAiModels
from lmi_handlers.base import anthropic_models as anthropic
from lmi_handlers.base.anthropic_answers import AnthropicError, AnthropicModel, AnthropicModels

LISTED = (AnswerForm(OpenAiModels), AnswerForm(AnthropicModels))
SHOWN = (AnswerForm(OpenAiModel), AnswerForm(AnthropicModel))
HUB_ID = re.compile(r"[\w-][\w.-]*/[\w.-]+")
AT_ONCE = 100  # models, described in a few milliseconds before requests get a turn
ERRORS = (failures(OpenAiError, *STATUSES), failures(AnthropicError, 400, 404))


async def list_models(call: Call, dispatcher: ServedModels) -> Answer:
    models = dispatcher.models.values()
    own = [(model, name) for model in models for name in model.names]
    taken = Counter(name for model in models for name in (*model.names, *model.adapter_names))
    adapters = [
        (model, name) for model in models for name in model.adapter_names if taken[name] == 1
    ]  # names that are unambiguous
    served = own + adapters
    if anthropic.is_anthropic(call):
        return anthropic.page_of_models(call, served, {name: _longest(model) for model, name in served})
    described = [_described(model, name) async for model, name in with_pauses(served, AT_ONCE)]
    return _answer({"object": "list", "data": described})


async def show_model(call: Call, dispatcher: ServedModels) -> Answer:
    """Answer with the model in the path. Raise ModelNotFound if it is not served."""
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
        "root": PurePath(model.adapter_folders[name]).name if is_adapter else _root(model),
        "parent": model.names[0] if is_adapter else None,
        "max_model_len": _longest(model),
        "permission": [_permission(model, name)],
        "engine": model.runtime_name,
        "example_questions": list(model.options.questions),
        "capabilities": _capabilities(model),
    }


def _permission(model: ManagedModel, name: str) -> dict[str, Any]:
    """Return the member that OpenAI's API once had and vLLM's server still sends."""
    allowed = dict.fromkeys(("allow_sampling", "allow_logprobs", "allow_view"), True)
    refused = dict.fromkeys(("allow_create_engine", "allow_search_indices", "allow_fine_tuning", "is_blocking"), False)
    head = {"id": f"modelperm-{name}", "object": "model_permission", "created": model.created}
    return {**head, **allowed, **refused, "organization": "*", "group": None}


def _root(model: ManagedModel) -> str:
    """Return the model's id on the Hugging Face hub, or its name: the answer shows no paths of files."""
    given, files = model.model_id, model.files
    if given is None or not HUB_ID.fullmatch(given) or (files is not None and files.as_posix().endswith(given)):
        return model.name
    return given


def _capabilities(model: ManagedModel) -> dict[str, Any] | None:
    """Return the capabilities of the model; None while unknown."""
    known = known_capabilities(model)
    if known is None:
        return None
    return {
        "completion": known.completion,
        "chat": known.chat,
        "tools": known.tools,
        "insert": known.insert,
        "reasoning": known.reasoning,
        "logprobs": known.log_probs,
        "images": known.images,
        "embeddings": known.embeddings,
        "rerank": known.rerank,
    }


def _longest(model: ManagedModel) -> int | None:
    """Return the maximum tokens of a prompt and its answer; None while the model loads, or if there is no limit."""
    return getattr(model.backend, "max_length", None) if model.generates else None


def _answer(content: dict[str, Any]) -> Answer:
    return json_answer(content)
