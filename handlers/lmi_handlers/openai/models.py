"""The list of served models and their adapters, in OpenAI's form with vLLM's members, and in Anthropic's."""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import PurePath
from typing import Any

from lmi_core.calls.answer import json_answer
from lmi_core.calls.answer_form import failures
from lmi_core.errors import InvalidPayload, LmiError, ModelNotFound
from lmi_core.handler import Answer, AnswerForm, Call
from lmi_core.host.pauses import with_pauses
from lmi_core.payloads.payload import quote
from lmi_core.served_model import ManagedModel, ServedModels
from lmi_core.serving.capabilities import known_capabilities
from lmi_handlers.answers.openai import STATUSES, OpenAiError, OpenAiModel, OpenAiModels
from lmi_handlers.base.anthropic_answers import AnthropicError, AnthropicModel, AnthropicModels
from lmi_handlers.base.anthropic_errors import REQUEST_ID_HEADER, add_request_id, error_answer

VERSION_HEADER = "anthropic-version"  # of Anthropic's clients
MAX_PAGE = 1000
MAX_DIGITS = 9  # of a number; Python refuses to read thousands
DEFAULT_PAGE = 20
LISTED = (AnswerForm(OpenAiModels), AnswerForm(AnthropicModels))
SHOWN = (AnswerForm(OpenAiModel), AnswerForm(AnthropicModel))
HUB_ID = re.compile(r"[\w-][\w.-]*/[\w.-]+")
AT_ONCE = 100  # models, described in a few milliseconds before requests get a turn
ERRORS = (failures(OpenAiError, *STATUSES), failures(AnthropicError, 400, 404))


async def list_models(call: Call, dispatcher: ServedModels) -> Answer:
    models = dispatcher.models.values()
    own = [(model, name) for model in models for name in model.names]
    taken = Counter(name for model in models for name in (*model.names, *model.adapter_names))
    # Of adapters, those that mean one thing.
    adapters = [(model, name) for model in models for name in model.adapter_names if taken[name] == 1]
    if VERSION_HEADER in call.headers:
        return _page(call, own + adapters)
    described = [_describe(model, name) async for model, name in with_pauses(own + adapters, AT_ONCE)]
    return json_answer({"object": "list", "data": described})


async def show_model(call: Call, dispatcher: ServedModels) -> Answer:
    """Answer with the model in the path. Raise ModelNotFound if it is not served."""
    name = call.path_parameters["model"]
    if VERSION_HEADER not in call.headers:
        return json_answer(_describe(dispatcher.find_with_adapters(name), name))
    try:
        return _to_anthropic(call, _for_anthropic(dispatcher.find_with_adapters(name), name))
    except ModelNotFound as error:
        return _error(call, error)


def _page(call: Call, models: Sequence[tuple[ManagedModel, str]]) -> Answer:
    """Answer one of Anthropic's clients with the page of models in the query."""
    backwards = bool(call.query.get("before_id"))
    try:
        first, last = _bounds(call, [name for _, name in models], backwards)
    except InvalidPayload as error:
        return _error(call, error)
    page = [_for_anthropic(model, name) for model, name in models[first:last]]
    content = {
        "data": page,
        "has_more": first > 0 if backwards else last < len(models),
        "first_id": page[0]["id"] if page else None,
        "last_id": page[-1]["id"] if page else None,
    }
    return _to_anthropic(call, content)


def _error(call: Call, error: LmiError) -> Answer:
    return add_request_id(error_answer(error, None), call.request_id)


def _to_anthropic(call: Call, content: dict[str, Any]) -> Answer:
    return json_answer(content, headers={REQUEST_ID_HEADER: call.request_id})


def _bounds(call: Call, names: list[str], backwards: bool) -> tuple[int, int]:
    """Return the start and the end of the page among the models. Raise InvalidPayload if there is no such page."""
    limit = call.query.get("limit", str(DEFAULT_PAGE))
    if not (limit.isdecimal() and len(limit) <= MAX_DIGITS and 1 <= int(limit) <= MAX_PAGE):
        raise InvalidPayload(f"`limit` must be a number from 1 to {MAX_PAGE}. Given: {quote(limit)}")
    if backwards:
        last = _index(call, "before_id", names)
        return max(0, last - int(limit)), last
    first = _index(call, "after_id", names) + 1 if call.query.get("after_id") else 0
    return first, min(first + int(limit), len(names))


def _index(call: Call, cursor: str, names: list[str]) -> int:
    name = call.query[cursor]
    if name not in names:
        raise InvalidPayload(f"`{cursor}` must be the id of a model. Given: {quote(name)}")
    return names.index(name)


def _for_anthropic(model: ManagedModel, name: str) -> dict[str, Any]:
    created = datetime.fromtimestamp(model.created, UTC)
    return {
        "type": "model",
        "id": name,
        "display_name": name,
        "created_at": created.strftime("%Y-%m-%dT%H:%M:%SZ"),
        "lifecycle": "active",
        "max_input_tokens": _longest(model),
        "max_tokens": _longest(model),
    }


def _describe(model: ManagedModel, name: str) -> dict[str, Any]:
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
    return {name.replace("_", ""): value for name, value in asdict(known).items()} if known is not None else None


def _longest(model: ManagedModel) -> int | None:
    """Return the maximum tokens of a prompt and its answer; None while the model loads, or if there is no limit."""
    return getattr(model.backend, "max_length", None) if model.generates else None
