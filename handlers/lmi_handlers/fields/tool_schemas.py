"""Validation of the JSON schemas of tools' arguments, with errors for the client."""

from collections import deque
from collections.abc import Callable, Container, Iterator
from typing import Any, NamedTuple
from urllib.parse import unquote

from lmi_core.payloads.payload import quote

TYPES = ("array", "boolean", "integer", "null", "number", "object", "string")
SCHEMA = ("additionalProperties", "contains", "else", "if", "items", "not", "propertyNames", "then")
SCHEMAS_BY_NAME = ("$defs", "definitions", "dependentSchemas", "patternProperties", "properties")
LISTS_OF_SCHEMAS = ("allOf", "anyOf", "oneOf", "prefixItems")


class Place(NamedTuple):
    """A place in a schema that must contain a schema."""

    path: tuple[str, ...]
    value: Any


def check_tool_schema(schema: dict[str, Any]) -> None:
    """Raise ValueError with the first member that is not valid in a JSON schema."""
    if schema.get("type", "object") != "object":
        raise _wrong(("type",), "object, because arguments have names", schema["type"])
    for place in schemas_within(schema):
        if isinstance(place.value, dict):
            for name, (is_right, needed) in MEMBERS.items():
                if name in place.value and not is_right(place.value[name]):
                    raise _wrong((*place.path, name), needed, place.value[name])
            reference = place.value.get("$ref", "")
            if reference.startswith("#/") and not _leads_somewhere(reference, schema):
                raise _wrong((*place.path, "$ref"), "a reference within this schema", reference)
        elif not isinstance(place.value, bool):
            raise _wrong(place.path, "a JSON schema, an object", place.value)


def schemas_within(schema: dict[str, Any]) -> Iterator[Place]:
    """Yield the schema itself and then all schemas in it, each before those that it contains."""
    places = deque([Place((), schema)])
    while places:  # not recursive, because the client chooses the depth
        place = places.popleft()
        yield place
        if isinstance(place.value, dict):
            places.extend(_schemas_in(place))


def _schemas_in(place: Place) -> Iterator[Place]:
    for name, value in place.value.items():
        path = (*place.path, name)
        if name in SCHEMAS_BY_NAME:
            yield from (Place((*path, key), each) for key, each in value.items())
        # Older drafts use it for tuples
        elif name in LISTS_OF_SCHEMAS or (name == "items" and isinstance(value, list)):
            yield from (Place((*path, str(index)), each) for index, each in enumerate(value))
        elif name in SCHEMA:
            yield Place(path, value)


def _are_texts(values: object, allowed: Container[str] | None = None) -> bool:
    return isinstance(values, list) and all(isinstance(each, str) and each in (allowed or [each]) for each in values)


MEMBERS: dict[str, tuple[Callable[[object], bool], str]] = {
    "type": (
        lambda value: _are_texts(value if isinstance(value, list) and value else [value], TYPES),
        f"one of {', '.join(TYPES)}, or a list of these",
    ),
    "required": (_are_texts, "a list of names"),
    "enum": (lambda value: isinstance(value, list) and bool(value), "a list of values"),
    **dict.fromkeys(("pattern", "$ref"), (lambda value: isinstance(value, str), "a string")),
    **dict.fromkeys(
        SCHEMAS_BY_NAME, (lambda value: isinstance(value, dict), "an object with a JSON schema for each name")
    ),
    **dict.fromkeys(
        LISTS_OF_SCHEMAS, (lambda value: isinstance(value, list) and bool(value), "a list of JSON schemas")
    ),
}


def _leads_somewhere(reference: str, root: object) -> bool:
    """Follow a JSON pointer."""
    for part in unquote(reference).removeprefix("#/").split("/"):
        name = part.replace("~1", "/").replace("~0", "~")
        if isinstance(root, list) and name.isdecimal() and int(name) < len(root):
            root = root[int(name)]
        elif isinstance(root, dict) and name in root:
            root = root[name]
        else:
            return False
    return True


def _wrong(path: tuple[str, ...], needed: str, given: object) -> ValueError:
    return ValueError(f"is not a valid JSON schema: its `{'.'.join(path)}` must be {needed}. Given: {quote(given)}")
