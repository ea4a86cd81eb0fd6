"""JSON schemas and choices as GBNF, llama.cpp's grammars.

In the thread that decodes for all requests, llama.cpp compares each token of the vocabulary with each way in which the
text can continue, of which a grammar with recursive rules can have any number. So clients cannot send grammars: those
written here recurse only within the brackets of JSON, and have few alternatives. Keywords that cannot be enforced are
errors.
"""

import json
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

MAX_SIZE = 2000  # the rules and repetitions of a grammar, like llama.cpp's limit for one repetition
MAX_ALTERNATIVES = 256  # each may take llama.cpp milliseconds at a step, with a vocabulary of 128,000 tokens
Type = Literal["string", "integer", "number", "boolean", "null", "object", "array"]
Count = Annotated[int, Field(ge=0, le=MAX_SIZE)]
COMMA, COLON = '"," " "?', '":" " "?'
NUMBER = '("0" | [1-9] [0-9]{0,15})'
# Values of any kind. Strings need no escapes for Unicode, half of a character each, as all characters can be written.
BASE = rf"""
char ::= [^"\\\x00-\x1F] | "\\" ["\\bfnrt]
string ::= "\"" char* "\""
integer ::= "0" | "-"? [1-9] [0-9]{{0,15}}
number ::= "-"? {NUMBER} ("." [0-9]{{1,16}})? ([eE] [-+]? [0-9]{{1,2}})?
boolean ::= "true" | "false"
null ::= "null"
member ::= string {COLON} value
object ::= "{{" (member ({COMMA} member)*)? "}}"
array ::= "[" (value ({COMMA} value)*)? "]"
value ::= string | number | boolean | null | object | array
"""
ANNOTATIONS = {"$schema", "$comment", "$defs", "definitions", "title", "description", "default", "examples"}
ANNOTATIONS |= {"deprecated", "readOnly", "writeOnly"}
TYPES = {str: "string", int: "integer", float: "number", bool: "boolean", type(None): "null", dict: "object"}
CONTAINERS = {"object", "array", "value"}  # rules for values of any type
KEYWORDS = {
    "object": {"properties", "required", "additionalProperties"},
    "array": {"items", "minItems", "maxItems"},
    "string": {"minLength", "maxLength"},
}


class Keywords(BaseModel):
    """The keywords that constrain a value by its type."""

    model_config = ConfigDict(extra="forbid", strict=True)

    type: Type | Annotated[list[Type], Field(min_length=1)] = []
    properties: dict[str, Any] = {}
    required: list[str] = []
    additionalProperties: Any = True
    items: Any = True
    minItems: Count = 0
    maxItems: Count | None = None
    minLength: Count = 0
    maxLength: Count | None = None

    @property
    def types(self) -> list[str]:
        given: list[Any] = [self.type] if isinstance(self.type, str) else self.type
        return given or [name for name, keywords in KEYWORDS.items() if keywords & self.model_fields_set]


def grammar_of_choices(choices: list[str]) -> str:
    """Return the grammar of these texts. Raise ValueError if there are too many."""
    grammar = _Grammar(None)
    return grammar.text(grammar.rule(*map(_literal, choices)))


def grammar_of_schema(schema: Any) -> str:
    """Return the grammar of the JSON texts that match a schema. Raise ValueError if it cannot be enforced."""
    grammar = _Grammar(schema)
    try:
        return grammar.text(grammar.of_schema(schema))
    except RecursionError:
        raise ValueError("is nested too deeply, or refers to itself") from None


class _Grammar:
    def __init__(self, schema: Any) -> None:
        self._schema = schema
        self._rules: list[str] = []
        self._size = self._alternatives = 0

    def text(self, root: str) -> str:
        return "\n".join([f"root ::= {root}", *self._rules]) + BASE

    def rule(self, *alternatives: str) -> str:
        """Add a rule, and return its name."""
        self._spend(1, len(alternatives) - 1)
        name = f"r{len(self._rules)}"
        self._rules.append(f"{name} ::= {' | '.join(alternatives)}")
        return name

    def of_schema(self, schema: Any) -> str:
        """Return the name of a rule for the values that match a schema."""
        if schema is True:
            schema = {}
        if not isinstance(schema, dict):
            raise ValueError(f"has {json.dumps(schema)[:80]} where this backend needs a schema as an object")
        given = {name: value for name, value in schema.items() if name not in ANNOTATIONS}
        if given.keys() == {"$ref"}:
            return self.of_schema(self._referred(given["$ref"]))
        if given.keys() == {"anyOf"} and isinstance(given["anyOf"], list) and given["anyOf"]:
            return self.rule(*map(self.of_schema, given["anyOf"]))
        if "const" in given and "enum" not in given:
            given["enum"] = [given.pop("const")]
        values = given.pop("enum", None)
        keywords = _keywords(given)
        if values is not None:
            return self._of_values(values, keywords)
        return self.rule(*(self._of_type(name, keywords) for name in keywords.types or ["value"]))

    def _referred(self, reference: Any) -> Any:
        found = self._schema
        first, *names = str(reference).split("/")
        for name in names:
            name = name.replace("~1", "/").replace("~0", "~")
            found = found.get(name) if isinstance(found, dict) else None
        if first != "#" or found is None:
            raise ValueError(f"has the `$ref` {json.dumps(reference)[:80]}, which does not lead to a part of it")
        return found

    def _of_values(self, values: Any, keywords: Keywords) -> str:
        if keywords.model_fields_set - {"type"} or not isinstance(values, list):
            raise ValueError("must have a list in `enum`, and beside `enum` and `const` no keyword but `type`")
        allowed = {*keywords.types, *(["integer"] if "number" in keywords.types else [])}
        values = [each for each in values if not allowed or TYPES.get(type(each), "array") in allowed]
        if not values:
            raise ValueError("has an `enum` without a value of its `type`")
        return self.rule(*(_json_literal(each) for each in values))

    def _of_type(self, name: str, keywords: Keywords) -> str:
        if not KEYWORDS.get(name, set()) & keywords.model_fields_set:
            self._spend(1, len(TYPES) if name in CONTAINERS else 0)
            return name
        if name == "string":
            return self.rule(rf'"\"" {self._repeated("char", keywords.minLength, keywords.maxLength)} "\""')
        return self._array(keywords) if name == "array" else self._object(keywords)

    def _array(self, keywords: Keywords) -> str:
        low, high = keywords.minItems, keywords.maxItems
        if high == 0 == low:
            return self.rule('"[]"')
        more = self.rule(f"{COMMA} {(item := self.of_schema(keywords.items))}")
        items = f"{item} {self._repeated(more, max(low - 1, 0), None if high is None else high - 1)}"
        return self.rule(f'"[" {items} "]"', *([] if low else ['"[]"']))

    def _object(self, keywords: Keywords) -> str:
        """Return a rule for an object of the declared properties, in their order, or of any number of others."""
        properties, others = keywords.properties, keywords.additionalProperties
        if missing := set(keywords.required) - properties.keys():
            raise ValueError(f"has {json.dumps(min(missing))} in `required`, but not in `properties`")
        if not properties and others is not False:
            member = self.rule(f"string {COLON} {self.of_schema(others)}")
            return self.rule(f'"{{" ({member} ({COMMA} {member})*)? "}}"')
        # The rest of the object, if no property has been written yet and if one has.
        first = following = self.rule('"}"')
        for name, schema in reversed(properties.items()):
            member = self.rule(f"{_json_literal(name)} {COLON} {self.of_schema(schema)} {following}")
            optional = name not in keywords.required
            first = self.rule(member, *([first] if optional else []))
            following = self.rule(f"{COMMA} {member}", *([following] if optional else []))
        return self.rule(f'"{{" {first}')

    def _repeated(self, name: str, low: int, high: int | None) -> str:
        if high is not None and high < low:
            raise ValueError("has a maximum below its minimum")
        self._spend(low if high is None else high)
        return f"{name}{{{low},{'' if high is None else high}}}"

    def _spend(self, size: int, alternatives: int = 0) -> None:
        self._size, self._alternatives = self._size + size, self._alternatives + alternatives
        if self._alternatives >= MAX_ALTERNATIVES:
            raise ValueError(f"has more than {MAX_ALTERNATIVES} alternatives, such as choices and optional properties")
        if self._size > MAX_SIZE:
            raise ValueError(f"has more than {MAX_SIZE} rules and repetitions, or refers to itself")


def _keywords(given: dict[str, Any]) -> Keywords:
    try:
        return Keywords.model_validate(given)
    except ValidationError as error:
        first = error.errors()[0]
        name = first["loc"][0]
        if first["type"] == "extra_forbidden":
            raise ValueError(f"has `{name}`, which this backend cannot enforce here") from None
        raise ValueError(f"has an invalid value of `{name}`: {first['msg']}") from None


def _json_literal(value: Any) -> str:
    return _literal(json.dumps(value, ensure_ascii=False))


def _literal(text: str) -> str:
    return '"' + "".join(f"\\U{ord(character):08X}" for character in text) + '"'
