"""Responses as objects like those of vLLM's server, for formatters that change `response.choices[0].text`.

Their attributes are a contract with model.py, the same for every dialect; `text_path` of a dialect's formatter is the
place of the text in its JSON.
"""

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import orjson

from lmi_core.generation.output import GenerationOutput

JsonObject = dict[str, Any]


class ResponseObject(SimpleNamespace):
    """A JSON object with its keys as attributes, also in nested objects."""

    def model_dump(self, **_: Any) -> JsonObject:
        return {name: plain(value) for name, value in vars(self).items()}

    def model_dump_json(self, **_: Any) -> str:
        return orjson.dumps(self.model_dump()).decode()


class MessageObject(ResponseObject):
    """A chat's message or delta; missing fields, such as the content of the final delta, read as empty."""

    role: str | None = None
    content: str | None = None
    tool_calls: Sequence[Any] = ()


MESSAGES = {"message": MessageObject, "delta": MessageObject}


def as_object(value: Any, kind: type[ResponseObject] = ResponseObject) -> Any:
    if isinstance(value, dict):
        return kind(**{str(name): as_object(item, MESSAGES.get(name, ResponseObject)) for name, item in value.items()})
    return [as_object(item) for item in value] if isinstance(value, list) else value


def plain(value: Any) -> Any:
    """Convert a ResponseObject, a pydantic model, or a structure of them to JSON types."""
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, dict):
        return {name: plain(item) for name, item in value.items()}
    return value.model_dump() if hasattr(value, "model_dump") else value


class EngineResponse:
    """A conversion of a dialect's answer or chunk to a ResponseObject and back.

    If the dialect has no `choices`, the object adds them, and text changed there is written back.
    """

    def __init__(
        self,
        data: JsonObject,
        output: GenerationOutput,
        text_path: Sequence[str],
        request_id: str,
        model: str,
        created: int,
    ) -> None:
        self._text_path = text_path
        self.texts = texts_in(data, text_path)
        self.object: ResponseObject = as_object(data)
        shown = {"model": model}
        if not hasattr(self.object, "choices"):
            shown = _attributes(output, self.texts, request_id, model, created)
        # The attributes that the answer lacks
        self._shown = {name: value for name, value in shown.items() if not hasattr(self.object, name)}
        for name, value in self._shown.items():
            setattr(self.object, name, as_object(value))

    def changed_texts(self, response: ResponseObject) -> list[str]:
        """Return the texts of the choices after the formatter has run."""
        return [choice.text for choice in response.choices] if "choices" in self._shown else self.texts

    def data(self, response: ResponseObject) -> JsonObject:
        """Return the answer in the dialect's form, with the formatter's additions."""
        data = response.model_dump()
        for name, shown in self._shown.items():
            if name == "choices" or data.get(name) == shown:
                data.pop(name, None)
        texts = self.changed_texts(response)
        if texts != self.texts:
            left = iter(texts)
            for holder in _holders(data, self._text_path):
                found = holder[self._text_path[-1]]
                holder[self._text_path[-1]] = [next(left) for _ in found] if isinstance(found, list) else next(left)
        return data


def _attributes(output: GenerationOutput, texts: list[str], request_id: str, model: str, created: int) -> JsonObject:
    """Return a text completion's attributes; none for an answer without text, such as an error."""
    if not texts:
        return {}
    reason = output.sequence.finish_reason
    return {
        "id": request_id,
        "object": "text_completion",
        "created": created,
        "model": model,
        "choices": [
            {"index": index, "text": text, "finish_reason": reason, "stop_reason": None, "logprobs": None}
            for index, text in enumerate(texts)
        ],
        "usage": {
            "prompt_tokens": output.usage.prompt_tokens,
            "completion_tokens": output.usage.generated_tokens,
            "total_tokens": output.usage.total_tokens,
        },
        "system_fingerprint": None,
    }


def texts_in(data: JsonObject, path: Sequence[str]) -> list[str]:
    """Return the texts at the path in an answer, also through lists; empty if the path does not exist."""
    return [str(text) for holder in _holders(data, path) for text in _as_list(holder[path[-1]])]


def _holders(data: JsonObject, path: Sequence[str]) -> list[JsonObject]:
    """Return the objects with the path's last member, a text or a list of texts."""
    if not path:
        return []
    objects = [data]
    for name in path[:-1]:
        objects = [inner for each in objects for inner in _as_list(each.get(name)) if isinstance(inner, dict)]
    return [each for each in objects if isinstance(each.get(path[-1]), str | list)]


def _as_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]
