from typing import Any

import pytest

from lmi_plugins.torch_engine.guides.json_schema import check_schema

SUPPORTED: dict[str, Any] = {
    "title": "Person",
    "description": "not a keyword that says what is valid",
    "type": "object",
    "$defs": {"Kind": {"enum": ["cat", "dog"], "type": "string"}, "Id": {"type": "integer", "multipleOf": 5}},
    "properties": {
        "not": {"$ref": "#/$defs/Kind", "description": "a property may have any name"},
        "uniqueItems": {"anyOf": [{"type": "integer", "minimum": 3}, {"type": "null"}], "default": None},
        "list": {"type": "array", "items": {"type": "number"}, "minItems": 1, "uniqueItems": False},
        "any": True,
    },
    "required": ["not"],
    "additionalProperties": False,
}


def test_what_is_supported_passes() -> None:
    check_schema(SUPPORTED)


@pytest.mark.parametrize(
    ("schema", "problem"),
    [
        ({"not": {"type": "string"}}, "`not` in a JSON schema is not supported"),
        ({"type": "array", "uniqueItems": True}, "`uniqueItems` in a JSON schema is not supported"),
        ({"allOf": [{"type": "string"}, {"enum": ["a"]}]}, "`allOf` of several"),
        ({"$ref": "#/$defs/a", "minimum": 3}, r"`minimum` together with `\$ref`"),
        ({"type": "string", "enum": ["a"], "maxLength": 3}, "`maxLength` together with `enum`"),
        ({"type": "string", "pattern": "a+", "maxLength": 3}, "`maxLength` together with `pattern`"),
        ({"$ref": "https://example.com/schema.json"}, r"`\$ref` in a JSON schema must be a reference within"),
        ({"maximum": 3}, "`maximum` in a JSON schema requires `type` in the same schema"),
        ({"type": "number", "multipleOf": 3}, "`multipleOf` in a JSON schema is supported only for integers"),
        ({"type": "integer", "multipleOf": 2.5}, "`multipleOf` in a JSON schema is supported only for integers"),
    ],
)
@pytest.mark.parametrize("deep", [False, True])
def test_what_would_be_passed_over_is_refused(schema: dict[str, Any], problem: str, deep: bool) -> None:
    if deep:
        schema = {"type": "object", "properties": {"a": {"type": "array", "items": {"anyOf": [schema]}}}}
    with pytest.raises(ValueError, match=problem):
        check_schema(schema)
