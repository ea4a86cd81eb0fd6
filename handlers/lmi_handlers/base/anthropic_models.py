"""Anthropic's list of models, at the same route as OpenAI's; a header selects the form."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from lmi_core.calls.answer import json_answer
from lmi_core.errors import InvalidPayload, LmiError
from lmi_core.handler import Answer, Call
from lmi_core.payloads.payload import shown
from lmi_core.served_model import ManagedModel
from lmi_handlers.base.anthropic_errors import REQUEST_ID_HEADER, error_answer, identified

VERSION_HEADER = "anthropic-version"
MAX_PAGE = 1000
DEFAULT_PAGE = 20

Named = tuple[ManagedModel, str]  # a model, and one of its names or of its adapters'


def is_anthropic(call: Call) -> bool:
    """Return whether the client is one of Anthropic's."""
    return VERSION_HEADER in call.headers


def page_of_models(call: Call, models: Sequence[Named], max_tokens: dict[str, int | None]) -> Answer:
    """Answer with the page of models in the query; `max_tokens` contains the context length of each name."""
    try:
        first, last = _bounds(call, [name for _, name in models])
    except InvalidPayload as error:
        return failed(call, error)
    page = [_described(model, name, max_tokens[name]) for model, name in models[first:last]]
    ids = [each["id"] for each in page]
    content = {
        "data": page,
        "has_more": first > 0 if _is_backwards(call) else last < len(models),
        "first_id": ids[0] if ids else None,
        "last_id": ids[-1] if ids else None,
    }
    return _answer(call, content)


def one_model(call: Call, model: ManagedModel, name: str, max_tokens: int | None) -> Answer:
    return _answer(call, _described(model, name, max_tokens))


def failed(call: Call, error: LmiError) -> Answer:
    """Answer with an error in Anthropic's form."""
    return identified(error_answer(error, None), call.request_id)


def _is_backwards(call: Call) -> bool:
    return bool(call.query.get("before_id"))


def _bounds(call: Call, names: list[str]) -> tuple[int, int]:
    """Return the start and the end of the page among the models. Raise InvalidPayload if there is no such page."""
    limit = call.query.get("limit", str(DEFAULT_PAGE))
    if not (limit.isascii() and limit.isdecimal() and 1 <= int(limit) <= MAX_PAGE):
        raise InvalidPayload(f"`limit` must be a number from 1 to {MAX_PAGE}. Given: {shown(limit)}")
    if _is_backwards(call):
        last = _index(call, "before_id", names)
        return max(0, last - int(limit)), last
    first = _index(call, "after_id", names) + 1 if call.query.get("after_id") else 0
    return first, min(first + int(limit), len(names))


def _index(call: Call, cursor: str, names: list[str]) -> int:
    name = call.query[cursor]
    if name not in names:
        raise InvalidPayload(f"`{cursor}` must be the id of a model. Given: {shown(name)}")
    return names.index(name)


def _described(model: ManagedModel, name: str, max_tokens: int | None) -> dict[str, Any]:
    created = datetime.fromtimestamp(model.created, UTC)
    return {
        "type": "model",
        "id": name,
        "display_name": name,
        "created_at": created.strftime("%Y-%m-%dT%H:%M:%SZ"),
        "lifecycle": "active",
        "max_input_tokens": max_tokens,
        "max_tokens": max_tokens,
    }


def _answer(call: Call, content: dict[str, Any]) -> Answer:
    return json_answer(content, headers={REQUEST_ID_HEADER: call.request_id})
