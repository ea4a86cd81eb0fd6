"""Declaration and description of keys of `serving.properties`."""

import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from typing import Annotated, Any, ClassVar, NamedTuple

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict
from pydantic.fields import FieldInfo

OPTION_PREFIX = "option."
NO_MPI = "option.rolling_batch chooses the engine, which starts the processes that it needs without MPI"

_NOUNS = {
    "boolean": "true or false",
    "integer": "an integer",
    "number": "a number",
    "object": "a JSON object",
    "string": "text",
}
_BOUNDS = {
    "exclusiveMinimum": "greater than",
    "minimum": "no less than",
    "exclusiveMaximum": "less than",
    "maximum": "no more than",
}


@dataclass(frozen=True)
class Names:
    """Further names of a property: key, other spellings, environment variables."""

    key: str | None = None
    aliases: tuple[str, ...] = ()
    environment: tuple[str, ...] = ()


@dataclass(frozen=True)
class NoEffect:
    """Mark a property that LMI accepts but that has no effect here; any value except the default causes a warning."""

    reason: str
    except_for: tuple[str, ...] = ()  # the only values that have an effect


class DeclaredKey(NamedTuple):
    """The description of a property, with full keys, and environment variables in order of precedence."""

    field: str
    key: str
    aliases: tuple[str, ...]
    environment: tuple[str, ...]
    type: str
    default: str
    help: str
    no_effect: NoEffect | None = None

    def why_without_effect(self, properties: BaseModel) -> str | None:
        """Return why the key's value has no effect; None if it has one, or is the default."""
        default = type(properties).model_fields[self.field].default
        if self.no_effect is None or getattr(properties, self.field) in (default, *self.no_effect.except_for):
            return None
        return self.no_effect.reason


class Properties(BaseModel):
    """Keys that share a prefix; a validator's `ValueError` completes a sentence about the key: "must be even"."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    prefix: ClassVar[str] = OPTION_PREFIX


@cache  # every model's plan needs the keys of every backend, and creating a schema takes milliseconds
def keys_of(properties_type: type[Properties]) -> tuple[DeclaredKey, ...]:
    """Return every key of the type, inherited ones first."""
    schemas = properties_type.model_json_schema()["properties"]
    return tuple(
        _declared_key(properties_type.prefix, name, field, _describe_type(schemas[name]))
        for name, field in properties_type.model_fields.items()
    )


def environment_variable(key: str) -> str:
    """Return a key's environment variable: `OPTION_X` for `option.x`, `SERVING_X` for `x`."""
    if key.startswith(OPTION_PREFIX):
        return "OPTION_" + key.removeprefix(OPTION_PREFIX).upper()
    return "SERVING_" + key.upper()


def _declared_key(prefix: str, name: str, field: FieldInfo, type_in_words: str) -> DeclaredKey:
    names = next((each for each in field.metadata if isinstance(each, Names)), Names())
    no_effect = next((each for each in field.metadata if isinstance(each, NoEffect)), None)
    key, *aliases = (prefix + spelling for spelling in (names.key or name, *names.aliases))
    variables = [environment_variable(spelling) for spelling in (key, *aliases)]
    return DeclaredKey(
        field=name,
        key=key,
        aliases=tuple(aliases),
        environment=tuple(dict.fromkeys([*variables, *names.environment])),
        type=type_in_words,
        default="" if field.is_required() else _as_text(field.default),
        help=field.description or (f"Accepted from LMI, without effect: {no_effect.reason}." if no_effect else ""),
        no_effect=no_effect,
    )


def _as_text(default: object) -> str:
    if default is None:
        return ""
    return default if isinstance(default, str) else json.dumps(default)


def _describe_type(schema: Mapping[str, Any]) -> str:
    if "anyOf" in schema:
        return " or ".join(_describe_type(choice) for choice in schema["anyOf"] if choice.get("type") != "null")
    if "enum" in schema:
        return "one of " + ", ".join(str(choice) for choice in schema["enum"])
    if "const" in schema:
        return str(schema["const"])
    bounds = [f"{words} {schema[bound]}" for bound, words in _BOUNDS.items() if bound in schema]
    return f"{_NOUNS[schema['type']]} {' and '.join(bounds)}".rstrip()


def _parse_json(value: object) -> object:
    if isinstance(value, str):
        with suppress(ValueError):
            return json.loads(value)
    return value


def checked_by(read: Callable[[str], object]) -> AfterValidator:
    """Return a validator that refuses values for which `read` raises ValueError."""

    def check(value: str | None) -> str | None:
        if value is not None:
            read(value)
        return value

    return AfterValidator(check)


JsonObject = Annotated[dict[str, Any], BeforeValidator(_parse_json)]
