"""Guides for calls that must be made, where the schemas of their parameters have references."""

from typing import Any

import pytest
import xgrammar

from lmi_handlers.fields.calls_schema import calls_schema
from lmi_handlers.fields.tool_fields import FunctionDefinition


def function(name: str, city: str) -> FunctionDefinition:
    """Return a function whose parameters refer to a definition, to a property, and to themselves."""
    parameters: dict[str, Any] = {
        "type": "object",
        "properties": {
            "from": {"$ref": "#/$defs/City"},
            "to": {"$ref": "#/properties/from"},
            "then": {"anyOf": [{"type": "null"}, {"$ref": "#"}]},
        },
        "required": ["from", "to", "then"],
        "additionalProperties": False,
        "$defs": {"City": {"enum": [city]}},
    }
    return FunctionDefinition(name=name, parameters=parameters)


def trip(city: str, then: str = "null") -> str:
    return f'{{"from":"{city}","to":"{city}","then":{then}}}'


def call(name: str, parameters: str) -> str:
    return f'{{"name":"{name}","parameters":{parameters}}}'


@pytest.fixture(scope="module")
def guide() -> xgrammar.Grammar:
    schema = calls_schema([function("fly-1", "Paris"), function("a/b~c", "Rome")], parallel=True)
    return xgrammar.Grammar.from_json_schema(schema)


@pytest.mark.parametrize(
    ("calls", "follows"),
    [
        (call("fly-1", trip("Paris")), True),
        (call("a/b~c", trip("Rome")), True),
        (call("fly-1", trip("Paris", then=trip("Paris"))) + "," + call("a/b~c", trip("Rome")), True),
        (call("fly-1", trip("Rome")), False),  # both functions call their definition `City`
        (call("a/b~c", trip("Paris")), False),
        (call("fly-1", trip("Paris", then=trip("Rome"))), False),
        (call("fly-1", '{"from":"Paris","to":"Rome","then":null}'), False),
    ],
)
def test_references_start_from_their_own_function(guide: xgrammar.Grammar, calls: str, follows: bool) -> None:
    info = xgrammar.TokenizerInfo([chr(code) for code in range(128)])
    matcher = xgrammar.GrammarMatcher(
        xgrammar.GrammarCompiler(info).compile_grammar(guide), terminate_without_stop_token=True
    )
    assert (matcher.accept_string(f"[{calls}]") and matcher.is_terminated()) == follows


def test_the_request_stays_as_it_was() -> None:
    given = function("fly", "Paris")
    calls_schema([given], parallel=True)
    assert given == function("fly", "Paris")


def test_schemas_without_references_stay_where_they_are() -> None:
    parameters = {"type": "object", "properties": {"$ref": {"enum": [{"$ref": "#/none"}]}}}
    schema = calls_schema([FunctionDefinition(name="f", parameters=parameters)], parallel=False)
    assert schema["items"]["anyOf"][0]["properties"]["parameters"] == parameters
    assert "$defs" not in schema
