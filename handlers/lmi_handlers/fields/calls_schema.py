"""The JSON schema of the calls in a chat with `tool_choice: required`."""

from collections.abc import Sequence
from typing import Any

import orjson

from lmi_handlers.fields.tool_fields import FunctionDefinition
from lmi_handlers.fields.tool_schemas import schemas_within

ANY_OBJECT = {"type": "object"}

JsonObject = dict[str, Any]


def calls_schema(functions: Sequence[FunctionDefinition], parallel: bool) -> JsonObject:
    """Return the schema of a list of calls; of one call unless they are `parallel`."""
    calls: list[JsonObject] = []
    definitions: JsonObject = {}
    for index, function in enumerate(functions):
        parameters = function.parameters or ANY_OBJECT
        if any(isinstance(place.value, dict) and "$ref" in place.value for place in schemas_within(parameters)):
            # A separate place, because two functions may have definitions with the same name
            name = f"parameters_{index}"
            definitions[name] = _rebase(parameters, f"#/$defs/{name}")
            parameters = {"$ref": f"#/$defs/{name}"}
        calls.append(
            {
                "type": "object",
                "properties": {"name": {"enum": [function.name]}, "parameters": parameters},
                "required": ["name", "parameters"],
                "additionalProperties": False,
            }
        )
    schema: JsonObject = {"type": "array", "minItems": 1, "items": {"anyOf": calls}}
    if not parallel:
        schema["maxItems"] = 1
    return schema | ({"$defs": definitions} if definitions else {})


def _rebase(parameters: JsonObject, place: str) -> JsonObject:
    """Return the schema with references relative to `place` instead of its own root."""
    moved: JsonObject = orjson.loads(orjson.dumps(parameters))
    for schema in schemas_within(moved):
        if isinstance(schema.value, dict) and schema.value.get("$ref", "").startswith("#"):
            schema.value["$ref"] = place + schema.value["$ref"][1:]
    return moved
