"""Refusal of JSON schemas with keywords that xgrammar ignores: an error is better than text that violates the
schema.
"""

from collections.abc import Iterator
from typing import Any

# By type, the keywords that only apply if `type` is given.
TYPED = {
    "string": {"pattern", "format", "minLength", "maxLength"},
    "number": {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"},
    "object": {"required", "minProperties", "maxProperties", "propertyNames"},
    "array": {"minItems", "maxItems"},
}
INFERRED = {"object": "properties", "array": "items"}  # keywords that imply a type
UNKNOWN = {"not", "if", "then", "else", "dependentRequired", "uniqueItems", "contains", "minContains", "maxContains"}
VALUES = {"properties", "items", "prefixItems"}.union(*TYPED.values())
# The keywords that xgrammar checks first, and those that it then ignores.
ALONE = {
    "$ref": VALUES | {"enum", "const"},
    "anyOf": VALUES | {"enum", "const"},
    "oneOf": VALUES | {"enum", "const"},
    "allOf": VALUES | {"enum", "const"},
    "enum": VALUES,
    "const": VALUES,
    "pattern": {"minLength", "maxLength"},
    "format": {"minLength", "maxLength"},
}
SCHEMAS = ("items", "additionalProperties", "propertyNames", "unevaluatedProperties", "unevaluatedItems")
LISTS = ("prefixItems", "anyOf", "oneOf", "allOf")
MAPS = ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas")


def check_schema(schema: Any) -> None:
    """Raise ValueError, which names the keyword, for a schema of which xgrammar would ignore a part."""
    if not isinstance(schema, dict):
        return
    for problem in _problems(schema):
        raise ValueError(problem)
    for inner in _inner(schema):
        check_schema(inner)


def _problems(schema: dict[str, Any]) -> Iterator[str]:
    """Yield a message for each keyword of this level that would be ignored."""
    for keyword in sorted(UNKNOWN & schema.keys()):
        if schema[keyword] is not False:
            yield f"`{keyword}` in a JSON schema is not supported"
    if len(schema.get("allOf", ())) > 1:
        yield "`allOf` of several schemas is not supported"
    for first, others in ALONE.items():
        if first in schema:
            for keyword in sorted(others & schema.keys()):
                yield f"`{keyword}` together with `{first}` in a JSON schema is not supported"
    if not str(schema.get("$ref", "#")).startswith("#"):
        yield "`$ref` in a JSON schema must be a reference within that schema"
    for type_name, keywords in TYPED.items():
        if "type" not in schema and INFERRED.get(type_name) not in schema:
            for keyword in sorted(keywords & schema.keys()):
                yield f"`{keyword}` in a JSON schema requires `type` in the same schema"
    if "multipleOf" in schema and not (schema.get("type") == "integer" and isinstance(schema["multipleOf"], int)):
        yield "`multipleOf` in a JSON schema is supported only for integers"


def _inner(schema: dict[str, Any]) -> Iterator[Any]:
    """Yield the schemas within a schema."""
    yield from (schema[keyword] for keyword in SCHEMAS if keyword in schema)
    for keyword in LISTS:
        yield from schema.get(keyword, ())
    for keyword in MAPS:
        yield from schema.get(keyword, {}).values()
