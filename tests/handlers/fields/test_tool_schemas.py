"""Errors about tools whose parameters are not a valid JSON schema, over a real socket."""

from typing import Any

import pytest

from tests.conftest import SCRIPTED, RunningServer
from tests.handlers.openai.chats import chat
from tests.module_server import module_server

pytestmark = pytest.mark.asyncio(loop_scope="module")

CITY = {"type": "string", "description": "A city."}
TYPES = "must be one of array, boolean, integer, null, number, object, string, or a list of these. Given: "


server = module_server(SCRIPTED + "option.tool_call_parser=hermes\n")


def tools(parameters: object) -> list[dict[str, Any]]:
    return [{"type": "function", "function": {"name": "weather", "parameters": parameters}}]


def nested(depth: int) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "strng"}
    for _ in range(depth):
        schema = {"properties": {"a": schema}}
    return schema


@pytest.mark.parametrize("choice", ["auto", "required"])
@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"type": "array"}, "`type` must be object, because arguments have names. Given: 'array'"),
        ({"properties": ["city"]}, "`properties` must be an object with a JSON schema for each name. Given: ['city']"),
        ({"properties": {"city": "string"}}, "`properties.city` must be a JSON schema, an object. Given: 'strin"),
        ({"properties": {"city": {"type": "str"}}}, f"`properties.city.type` {TYPES}'str'"),
        ({"properties": {"city": {"type": ["str"]}}}, f"`properties.city.type` {TYPES}['str']"),
        (
            {"properties": {"city": CITY | {"required": True}}},
            "`properties.city.required` must be a list of names. Given: True",
        ),
        ({"properties": {"all": {"items": {"type": 5}}}}, f"`properties.all.items.type` {TYPES}5"),
        (
            {"properties": {"one": {"anyOf": [CITY, 5]}}},
            "`properties.one.anyOf.1` must be a JSON schema, an object. Given: 5",
        ),
        ({"properties": {"one": {"anyOf": []}}}, "`properties.one.anyOf` must be a list of JSON schemas. Given: []"),
        ({"properties": {"one": {"enum": "a"}}}, "`properties.one.enum` must be a list of values. Given: 'a'"),
        ({"properties": {"one": {"pattern": 5}}}, "`properties.one.pattern` must be a string. Given: 5"),
        ({"properties": {"one": {"$ref": 5}}}, "`properties.one.$ref` must be a string. Given: 5"),
        (
            {"properties": {"one": {"$ref": "#/$defs/x"}}},
            "`properties.one.$ref` must be a reference within this schema",
        ),
        ({"$defs": [1]}, "`$defs` must be an object with a JSON schema for each name. Given: [1]"),
        (nested(100), f"`{('properties.a.' * 100)[:80]}...` {TYPES}'strng'"),
    ],
)
async def test_what_is_no_schema(server: RunningServer, choice: str, parameters: object, message: str) -> None:
    answer = await chat(server, tools=tools(parameters), tool_choice=choice)
    error = answer.json()["error"]
    assert (answer.status, error["type"], error["param"]) == (
        400,
        "invalid_request_error",
        "tools.0.function.parameters",
    )
    begins = "`tools.0.function.parameters` is not a valid JSON schema: its "
    assert error["message"].startswith(begins + message)


async def test_what_is_no_schema_of_a_function(server: RunningServer) -> None:
    functions = [{"name": "weather", "parameters": {"type": "str"}}]
    error = (await chat(server, functions=functions)).json()["error"]
    assert error["message"].startswith("`functions.0.parameters` is not a valid JSON schema: its `type` must be")


@pytest.mark.parametrize(
    "parameters",
    [
        None,
        {},
        {"type": "object", "properties": {}},
        {"properties": {"type": CITY, "required": CITY, "enum": CITY}},  # names of arguments, not members
        {"properties": {"at": {"type": ["string", "null"]}, "any": True}, "additionalProperties": False},
        {"properties": {"on": {"$ref": "#/$defs/a~1b/items/0"}}, "$defs": {"a/b": {"items": [CITY]}}},
        {"properties": {"size": {"enum": [1, None], "x-unknown": 5, "default": {"type": "any"}}}, "required": []},
    ],
)
async def test_schemas(server: RunningServer, parameters: object) -> None:
    assert (await chat(server, tools=tools(parameters))).status == 200
