"""The responses of an operation in the OpenAPI document, and JSON schemas of bodies and answers."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import TypeAdapter

from lmi_core.calls.access import Access
from lmi_core.calls.answer_form import JSON, AnswerForm
from lmi_core.handler import Handler, Route

JsonObject = dict[str, Any]

REFERENCE = "#/components/schemas/{model}"
ANSWERED = "The answer"
FAILED = "An error, in the dialect's form"
FAILURES = {
    400: "The request is not valid",
    401: "No API key or token, or a wrong one",
    403: "Not allowed for this client, or not at all",
    404: "There is no such model, adapter or response",
    408: "The body arrived too slowly",
    409: "It exists already",
    413: "The body is too large",
    415: "The body has an encoding that the server cannot decode",
    422: "The request is not valid",
    424: "The request is not valid, or the model's own code failed",
    429: "Too many requests",
    499: "The request was aborted",
    500: "The server or the engine failed",
    503: "The model is not ready, or there are too many requests",
    504: "The generation took too long",
    507: "The model does not fit into the free memory",
    529: "Too many requests",
}
WITHOUT_LEAVE = (401, 429)  # errors of every route that requires a key, in its dialect's form
TO_BE_REPEATED = (429, 503, 529)
HEADERS: Mapping[str, JsonObject] = {
    "RequestId": {
        "description": "The request's id: the one that the client gave in this header, or a new one.",
        "schema": {"type": "string"},
    },
    "IgnoredParameters": {
        "description": "The names of unknown fields and parameters, which were dropped.",
        "schema": {"type": "string"},
    },
    "RetryAfter": {
        "description": "The number of seconds after which to retry, if there are too many requests.",
        "schema": {"type": "string"},
    },
}
ANYTHING: JsonObject = {"title": "The output of the model's own code"}
ANY_TYPE = "*/*"


class Schemas:
    """The schemas of several types, and the definitions of named types."""

    def __init__(self, types: Iterable[Any]) -> None:
        unique = list(dict.fromkeys(types))
        adapters = [(number, "validation", TypeAdapter(each)) for number, each in enumerate(unique)]
        found, definitions = TypeAdapter.json_schemas(adapters, ref_template=REFERENCE)  # type: ignore[arg-type]
        self._schemas: Mapping[Any, JsonObject] = {
            each: found[number, "validation"] for number, each in enumerate(unique)
        }
        self.definitions: JsonObject = definitions.get("$defs", {})

    def of(self, types: Iterable[Any]) -> JsonObject:
        """Return the schema of a value that has one of these types."""
        schemas = [self._schemas[each] for each in types]
        forms = [form for each in schemas for form in (each["anyOf"] if each.keys() == {"anyOf"} else [each])]
        unique = [form for place, form in enumerate(forms) if form not in forms[:place]]
        return unique[0] if len(unique) == 1 else {"anyOf": unique}


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """The facts, besides the routes, on which the forms of answers depend."""

    models: tuple[str, ...]
    own_code: bool = False  # whether a model has its own code that writes answers
    formatted: bool = False  # whether a model has an `option.output_formatter`


class Responses:
    """The responses of every route; the routes of a dialect share errors."""

    def __init__(self, schemas: Schemas, served: ModelFacts) -> None:
        self._schemas = schemas
        self._served = served
        self.shared: JsonObject = {}

    def of(self, handler: type[Handler] | None, route: Route) -> JsonObject:
        """Return the responses of a route by status; `default` is that of other errors."""
        answers = [form for form in route.answers if self._served.formatted or not form.formatted]
        errors = handler.errors if handler is not None else ()
        responses: JsonObject = {"200": {"description": ANSWERED}} if not answers else {}
        for status in statuses(answers):
            responses[str(status)] = self._response(status, answers, route)
        asks_for_key = errors and route.access is not Access.EVERYBODY
        for status in (*statuses(errors), *(WITHOUT_LEAVE if asks_for_key else ())):
            if str(status) not in responses:
                responses[str(status)] = self._shared_error(handler, status)
        if handler is not None:
            responses["default"] = self._shared_error(handler, None)
        if self._served.own_code and route.answer is None:
            responses["2XX"] = {"description": "An answer of the model's own code", "content": {ANY_TYPE: {}}}
        return dict(sorted(responses.items()))

    def _response(self, status: int, forms: Iterable[AnswerForm], route: Route) -> JsonObject:
        content = self._content(form for form in forms if status in form.statuses)
        failed = status in FAILURES
        if self._served.own_code and route.answer is None:
            content = _or_anything(content)
        headers = _headers(status) | ({} if failed else {"X-Lmi-Ignored-Parameters": _header("IgnoredParameters")})
        return {"description": FAILURES.get(status, ANSWERED), "headers": headers, "content": content}

    def _shared_error(self, handler: type[Handler] | None, status: int | None) -> JsonObject:
        assert handler is not None
        name = f"{handler.name}_{status or 'error'}"
        if name not in self.shared:
            forms = [form for form in handler.errors if status in form.statuses] or handler.errors
            content = self._content(forms)
            self.shared[name] = {
                "description": FAILURES.get(status or 0, FAILED),
                "headers": _headers(status),
                "content": _or_anything(content) if self._served.own_code else content,
            }
        return {"$ref": f"#/components/responses/{name}"}

    def _content(self, forms: Iterable[AnswerForm]) -> JsonObject:
        types: dict[str, list[AnswerForm]] = {}
        for form in forms:
            types.setdefault(form.content_type, []).append(form)
        return {content_type: self._media(found) for content_type, found in types.items()}

    def _media(self, forms: list[AnswerForm]) -> JsonObject:
        if any(form.type is None for form in forms):
            return {}
        return {"schema": self._schemas.of(form.type for form in forms)}


def statuses(forms: Iterable[AnswerForm]) -> list[int]:
    """Return the statuses of answers in these forms."""
    return sorted({status for form in forms for status in form.statuses})


def _headers(status: int | None) -> JsonObject:
    headers = {"x-request-id": _header("RequestId")}
    return headers | ({"Retry-After": _header("RetryAfter")} if status in TO_BE_REPEATED else {})


def _header(name: str) -> JsonObject:
    return {"$ref": f"#/components/headers/{name}"}


def _or_anything(content: JsonObject) -> JsonObject:
    """Return the content of answers that the model's own code may write instead."""
    known = content.get(JSON, {}).get("schema")
    alternatives = known.get("anyOf", [known]) if known else []
    return {**content, JSON: {"schema": {"anyOf": [*alternatives, ANYTHING]}}, ANY_TYPE: {}}
