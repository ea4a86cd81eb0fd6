from typing import Any

import pytest

from lmi_core.parsing.tool_calls.typed_values import json_value, parameter_schema, typed_value, types_of

SCHEMA = {
    "properties": {"a": {"$ref": "#/$defs/A"}, "b": {"$ref": "#/$defs/B"}, "c": True},
    "$defs": {"A": {"$ref": "#/$defs/B"}, "B": {"type": "integer"}, "Loop": {"$ref": "#/$defs/Loop"}},
}


@pytest.mark.parametrize(
    ("text", "types", "value"),
    [
        ("5", {"integer"}, 5),
        (" -5\n", {"integer"}, -5),
        ("5.0", {"integer"}, 5),
        ("5.5", {"integer"}, "5.5"),
        ("5.50", {"number"}, 5.5),
        ("5", {"number"}, 5),
        ("1e999", {"number"}, "1e999"),
        ("NaN", {"number"}, "NaN"),
        ("True", {"boolean"}, True),
        ("0", {"boolean"}, False),
        ("yes", {"boolean"}, "yes"),
        ("null", {"null", "string"}, None),
        ("null", {"string"}, "null"),
        ("5", {"string"}, "5"),
        ("5", {"string", "integer"}, 5),
        (' {"a": [1]} ', {"object"}, {"a": [1]}),
        ("{'a': True}", {"object"}, {"a": True}),
        ("{'a': {1}}", {"object"}, "{'a': {1}}"),
        ("[1]", {"object"}, "[1]"),
        ("[1, NaN]", {"array"}, "[1, NaN]"),
        ("[1, 'b']", {"array"}, [1, "b"]),
        ("[" * 10_000, {"array"}, "[" * 10_000),
    ],
)
def test_typed_value(text: str, types: set[str], value: Any) -> None:
    assert typed_value(text, types) == value
    assert type(typed_value(text, types)) is type(value)


@pytest.mark.parametrize(
    ("schema", "types"),
    [
        ({"type": "string"}, {"string"}),
        ({"type": ["string", "null"]}, {"string", "null"}),
        ({"anyOf": [{"type": "integer"}, {"oneOf": [{"type": "null"}]}]}, {"integer", "null"}),
        ({"enum": ["a", 1, 1.5, True, None]}, {"string", "integer", "number", "boolean", "null"}),
        ({"const": 1}, {"integer"}),
        ({"type": [["string"], "null"], "enum": None, "anyOf": 3, "oneOf": [None, 1]}, {"null"}),
        ({}, set()),
        (True, set()),
        (None, set()),
    ],
)
def test_types_of(schema: Any, types: set[str]) -> None:
    assert types_of(schema) == types


def test_types_of_a_schema_that_is_nested_too_deeply_are_unknown() -> None:
    schema: dict[str, Any] = {"type": "string"}
    for _ in range(5_000):
        schema = {"anyOf": [schema]}
    assert types_of(schema) == set()


def test_references_are_followed() -> None:
    assert parameter_schema(SCHEMA, "a") == {"type": "integer"}
    assert parameter_schema(SCHEMA, "c") is True
    assert parameter_schema(SCHEMA, "d") is None
    assert parameter_schema({}, "a") is None
    loop = SCHEMA | {"properties": {"a": {"$ref": "#/$defs/Loop"}}}
    assert types_of(parameter_schema(loop, "a")) == set()


@pytest.mark.parametrize(("text", "value"), [("1", 1), ('"a"', "a"), ("a", "a"), ("Infinity", "Infinity")])
def test_json_value(text: str, value: Any) -> None:
    assert json_value(text) == value
