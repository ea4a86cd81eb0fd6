"""TGI's `grammar` for structured output."""

from typing import Any, Literal

import orjson
from pydantic import BaseModel, ConfigDict, Field

from lmi_core.errors import InvalidPayload
from lmi_core.generation.parameters import GUIDES


class TgiGrammar(BaseModel):
    """A JSON schema or a regular expression that the answer must follow."""

    model_config = ConfigDict(extra="forbid", strict=True)

    type: Literal["json", "json_object", "json_schema", "regex"]
    value: dict[str, Any] | str = Field(
        description="A JSON schema, as an object or as JSON text, or a regular expression."
    )

    def guide(self) -> tuple[str, Any]:
        """Return LMI's parameter for the grammar, and its value. Raise InvalidPayload if it is invalid."""
        if self.type == "regex":
            if not isinstance(self.value, str):
                raise InvalidPayload("`parameters.grammar.value` must be a regular expression as a string")
            return "guided_regex", self.value
        schema = _schema(self.value)
        return "guided_json", schema.get("schema", schema) if self.type == "json_schema" else schema


def _schema(value: dict[str, Any] | str) -> dict[str, Any]:
    if isinstance(value, str):
        try:
            value = orjson.loads(value)
        except orjson.JSONDecodeError:
            value = ""
    if not isinstance(value, dict):
        raise InvalidPayload("`parameters.grammar.value` must be a JSON schema, as an object or as JSON text")
    return value


def use_grammar(grammar: TgiGrammar, parameters: dict[str, Any], names: dict[str, str]) -> None:
    """Add a grammar's parameter, and the client's name of it. Raise InvalidPayload if the grammar is invalid."""
    for other in GUIDES:
        if parameters.get(other) is not None:
            raise InvalidPayload(f"`grammar` and `{other}` cannot be used together: both constrain the output")
    guide, value = grammar.guide()
    parameters[guide], names[guide] = value, "grammar"
