"""Request fields for structured output: `response_format`, `structured_outputs`, and vLLM's older `guided_*`."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal, NamedTuple

import orjson
from pydantic import BaseModel, BeforeValidator, Field, model_validator

from lmi_core.errors import InvalidPayload
from lmi_core.generation.structural_tag import read_structural_tag
from lmi_core.payloads.tolerant_payload import TolerantPayload
from lmi_handlers.fields.calls_schema import ANY_OBJECT
from lmi_handlers.fields.parameter_fields import RequestPart, with_parameters


def _as_schema(given: object) -> object:
    if not isinstance(given, str):
        return given
    try:
        return orjson.loads(given)
    except orjson.JSONDecodeError as error:
        raise ValueError(f"must be a JSON schema, as an object or as JSON text: {error}") from None


GivenSchema = Annotated[dict[str, Any], BeforeValidator(_as_schema, json_schema_input_type=dict[str, Any] | str)]


class Guide(NamedTuple):
    """A constraint on the answer: LMI's parameter, its value, and the request's field."""

    parameter: str
    value: Any
    field: str


class JsonSchema(RequestPart):
    name: str | None = None
    description: str | None = None
    schema_: dict[str, Any] | None = Field(None, alias="schema")
    strict: bool | None = Field(None, description="Ignored: the answer always follows the schema.")


class ResponseFormat(RequestPart):
    type: Literal["text", "json_object", "json_schema", "structural_tag", "json", "regex"]
    json_schema: JsonSchema | None = None
    value: dict[str, Any] | str | None = Field(
        None, description="Hugging Face's field: the JSON schema for json and json_object, or the expression for regex."
    )
    schema_: GivenSchema | None = Field(None, alias="schema", description="The same as `value`, for a JSON schema.")
    format: dict[str, Any] | None = Field(None, description="A field of a structural tag.")
    structures: list[dict[str, Any]] | None = Field(
        None, description="A field of a structural tag in vLLM's older form."
    )
    triggers: list[str] | None = Field(None, description="A field of a structural tag in vLLM's older form.")

    @model_validator(mode="before")
    @classmethod
    def _accept_tgi_schema(cls, given: object) -> object:
        """Accept TGI's `value` of a json_schema, with or without a name, as OpenAI's `json_schema`."""
        if not isinstance(given, dict) or given.get("type") != "json_schema" or "json_schema" in given:
            return given
        others = {name: value for name, value in given.items() if name != "value"}
        value = given.get("value")
        if not isinstance(value, dict):
            return given
        return others | {"json_schema": value if isinstance(value.get("schema"), dict) else {"schema": value}}

    @model_validator(mode="after")
    def _check_fields(self) -> "ResponseFormat":
        if (self.type == "json_schema") != (self.json_schema is not None):
            raise ValueError("must have `json_schema` if and only if its `type` is json_schema")
        if self.type == "regex":
            if not isinstance(self.value, str) or self.schema_ is not None:
                raise ValueError("must have a regular expression as `value` and no `schema`")
        elif self.type in ("json", "json_object"):
            if self.value is not None and self.schema_ is not None:
                raise ValueError("must have `value` or its other name `schema`, but not both")
            if self.type == "json" and self._given_schema is None:
                raise ValueError("must have a JSON schema as `value`")
        elif self.value is not None or self.schema_ is not None:
            raise ValueError(f"must have neither `value` nor `schema` if its `type` is {self.type}")
        if self.type == "structural_tag":
            read_structural_tag(self.structural_tag)
        return self

    @property
    def _given_schema(self) -> dict[str, Any] | None:
        """The JSON schema given for the types json and json_object. Raise ValueError if it is not an object."""
        schema = self.schema_ if self.value is None else _as_schema(self.value)
        if schema is not None and not isinstance(schema, dict):
            raise ValueError("must have a JSON schema, an object, as `value`")
        return schema

    @property
    def structural_tag(self) -> dict[str, Any] | None:
        if self.type != "structural_tag":
            return None
        form = {"format": self.format, "structures": self.structures, "triggers": self.triggers}
        return {name: value for name, value in form.items() if value is not None}

    @property
    def json_guide(self) -> dict[str, Any] | None:
        """The JSON schema that the answer must follow; None if the format is not JSON."""
        if self.type in ("text", "structural_tag", "regex"):
            return None
        if self.type != "json_schema":
            return self._given_schema or ANY_OBJECT
        return (self.json_schema and self.json_schema.schema_) or ANY_OBJECT

    def guides(self) -> list[Guide]:
        return [
            Guide(
                "guided_json", self.json_guide, "response_format" + (".json_schema.schema" if self.json_schema else "")
            ),
            Guide("guided_structural_tag", self.structural_tag, "response_format"),
            Guide("guided_regex", self.value if self.type == "regex" else None, "response_format"),
        ]


# Names of guides whose values have the same form as LMI's parameters.
MEMBERS = {
    "choice": "guided_choice",
    "regex": "guided_regex",
    "grammar": "guided_grammar",
    "structural_tag": "guided_structural_tag",
}
FIELDS = {
    **{name: name for name in ("guided_json", "guided_choice", "guided_regex", "guided_grammar")},
    "structural_tag": "guided_structural_tag",
    "regex": "guided_regex",  # SGLang's names
    "ebnf": "guided_grammar",
}
GUIDE_NAMES = frozenset({"response_format", "structured_outputs", *FIELDS})


def _same(payload: BaseModel, names: Mapping[str, str], path: str = "") -> list[Guide]:
    return [Guide(parameter, getattr(payload, name), path + name) for name, parameter in names.items()]


@with_parameters(MEMBERS)
class StructuredOutputs(RequestPart):
    """The `structured_outputs` object of newer vLLM; at most one member may be set."""

    json_: GivenSchema | None = Field(
        None, alias="json", description="Constrain the output to JSON that matches this JSON schema."
    )
    json_object: bool | None = Field(None, description="Constrain the output to a JSON object.")

    def guides(self) -> list[Guide]:
        return [
            Guide("guided_json", self.json_, "structured_outputs.json"),
            Guide("guided_json", ANY_OBJECT if self.json_object else None, "structured_outputs.json_object"),
            *_same(self, MEMBERS, "structured_outputs."),
        ]


@with_parameters(FIELDS)
class GuideFields(TolerantPayload):
    """The structured output fields, of which a request may set at most one."""

    response_format: ResponseFormat | None = Field(
        None, description="The format of the output: text, any JSON object, or JSON that matches a schema."
    )
    structured_outputs: StructuredOutputs | None = Field(None, description="Constraints on the output, in vLLM's form.")
    guided_json: GivenSchema | None = None

    def guide(self, calls: dict[str, Any] | None = None, field: str = "tool_choice") -> Guide | None:
        """Return the request's guide, if any.

        Raise InvalidPayload if there are two. `calls` counts as one too: the JSON schema of the tool calls required by
        `field`.
        """
        given = [guide for guide in (Guide("guided_json", calls, field), *self._guides()) if guide.value is not None]
        if len(given) > 1:
            first, second = given[0].field, given[1].field
            raise InvalidPayload(f"`{first}` and `{second}` cannot be used together: both constrain the output")
        return given[0] if given else None

    def _guides(self) -> list[Guide]:
        if GUIDE_NAMES.isdisjoint(self.model_fields_set):
            return []
        return [
            *(self.response_format.guides() if self.response_format else ()),
            *(self.structured_outputs.guides() if self.structured_outputs else ()),
            *_same(self, FIELDS),
        ]
