"""Structural tags, which apply a grammar to parts of an answer, in xgrammar's form and vLLM's older one."""

import re
from typing import Annotated, Any

import orjson
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

JsonObject = dict[str, Any]

ANY_JSON: JsonObject = {}
# The prefix of xgrammar's messages: source location and failed expression.
SOURCE_PLACE = re.compile(r"^\[[\d:]+\] \S+:\d+: (?:Check failed: .*? is false: )?")


class Structure(BaseModel):
    """One tag of vLLM's older form."""

    model_config = ConfigDict(extra="ignore", strict=True)

    begin: str
    schema_: JsonObject | None = Field(None, alias="schema")
    end: str

    @property
    def tag(self) -> JsonObject:
        schema = ANY_JSON if self.schema_ is None else self.schema_
        content = {"type": "json_schema", "json_schema": schema}
        return {"type": "tag", "begin": self.begin, "content": content, "end": self.end}


class OlderForm(BaseModel):
    """vLLM's older form: free text with tags, each of which starts with a trigger."""

    model_config = ConfigDict(extra="ignore", strict=True)

    structures: list[Structure] = Field(min_length=1)
    triggers: list[str] = Field(min_length=1)

    @property
    def format(self) -> JsonObject:
        tags = [structure.tag for structure in self.structures]
        return {"type": "triggered_tags", "triggers": self.triggers, "tags": tags}


def read_structural_tag(given: object) -> object:
    """Return xgrammar's form of a tag given as JSON text or in the older form. Raise ValueError for anything else."""
    tag = _read(given) if isinstance(given, str) else given
    if not isinstance(tag, dict):
        raise ValueError("must be a structural tag, as an object or as JSON text")
    if tag.get("type", "structural_tag") != "structural_tag":
        raise ValueError('must have the `type` "structural_tag"')
    if ("format" in tag) == ("structures" in tag):
        raise ValueError("must have `format`, or `structures` and `triggers`")
    form = _older_format(tag) if "structures" in tag else tag["format"]
    if not isinstance(form, dict):
        raise ValueError("must have an object as its `format`")
    try:
        orjson.dumps(form)
    except TypeError:  # orjson reads deeper nesting than it can write
        raise ValueError("must be a structural tag with less nesting") from None
    return {"type": "structural_tag", "format": form}


StructuralTag = Annotated[JsonObject, BeforeValidator(read_structural_tag, json_schema_input_type=JsonObject | str)]


def grammar_mistake(error: Exception) -> str:
    """Return xgrammar's message about an invalid grammar, without the location in xgrammar's sources."""
    return SOURCE_PLACE.sub("", str(error)).strip().partition("\n")[0]


def _read(text: str) -> object:
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise ValueError(f"must be a structural tag, as an object or as JSON text: {error}") from None


def _older_format(tag: JsonObject) -> JsonObject:
    try:
        return OlderForm.model_validate(tag).format
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        name = ".".join(str(part) for part in first["loc"])
        raise ValueError(f"must have a valid `{name}`: {first['msg']}") from None
