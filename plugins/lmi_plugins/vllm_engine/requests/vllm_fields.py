"""The fields of vLLM's requests that no other engine has. Imports no vLLM."""

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, WithJsonSchema

from lmi_core.errors import InvalidParameter
from lmi_core.generation.parameters import GenerationParameters
from lmi_core.payloads.payload import explain

OF_IMAGES = ("mm_processor_kwargs", "media_io_kwargs")

DEEPEST = 32  # nested objects and arrays: more than any field needs, and too few to crash a process

JsonObject = dict[str, Any]


def _check_depth(value: JsonObject | None) -> JsonObject | None:
    level: list[Any] = [value]
    for _ in range(DEEPEST):
        level = [inner for each in level for inner in _members(each)]
    if any(isinstance(each, dict | list) for each in level):
        raise ValueError(f"must have at most {DEEPEST} levels of nesting")
    return value


def _members(value: object) -> list[Any]:
    if isinstance(value, dict):
        return list(value.values())
    return value if isinstance(value, list) else []


def _argument(value: object) -> object:
    for each in value if isinstance(value, list) else [value]:
        if not isinstance(each, str | int | float):
            raise ValueError("must be a string, a number, a boolean or a list of these")
    return value


ShallowObject = Annotated[JsonObject, AfterValidator(_check_depth)]
SCALARS = {"type": ["string", "number", "boolean"]}
Argument = Annotated[
    Any, AfterValidator(_argument), WithJsonSchema({"anyOf": [SCALARS, {"type": "array", "items": SCALARS}]})
]


class VllmFields(BaseModel):
    """The fields that only vLLM has, under the names that its server uses."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    vllm_xargs: dict[str, Argument] | None = Field(
        None, description="Additional arguments for custom logits processors and models."
    )
    kv_transfer_params: ShallowObject | None = Field(None, description="Parameters of the engine's KV connector.")
    priority: int = Field(
        0,
        ge=-(2**63),
        lt=2**63,
        description="With vLLM's `scheduling_policy` priority: lower values are scheduled first.",
    )
    ec_transfer_params: ShallowObject | None = Field(None, description="Parameters of the engine's EC connector.")
    mm_processor_kwargs: ShallowObject | None = Field(
        None, description="Arguments of the model's image processor; only with option.trust_request_mm_kwargs."
    )
    media_io_kwargs: dict[str, ShallowObject] | None = Field(
        None, description="How media are read, by their kind (`image`); only with option.trust_request_mm_kwargs."
    )


NOTHING = VllmFields()


def fields_of(parameters: GenerationParameters) -> VllmFields:
    """Return vLLM's own fields in a request's parameters."""
    found: VllmFields | None = getattr(parameters, "vllm_fields", None)
    return found or NOTHING


def read_fields(parameters: Mapping[str, Any]) -> VllmFields:
    """Return vLLM's own fields in unchecked parameters. Raise InvalidParameter if they are invalid."""
    try:
        return VllmFields.model_validate(parameters.get("vllm_fields") or {})
    except ValidationError as error:
        raise InvalidParameter(explain(error, VllmFields, "`vllm_fields`")) from None
