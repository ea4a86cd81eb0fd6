"""Fields of a dialect's requests that are parameters of LMI's table, and objects in requests."""

from collections.abc import Callable, Collection, Mapping
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field, create_model
from pydantic.fields import FieldInfo

from lmi_core.generation.parameters import ExtendedParameters

M = TypeVar("M", bound=BaseModel)

TABLE = ExtendedParameters.model_fields


class RequestPart(BaseModel):
    """An object in a request; members that are not declared are ignored."""

    model_config = ConfigDict(extra="ignore", strict=True)


def all_names(renamed: Mapping[str, str], left_out: Collection[str]) -> dict[str, str]:
    """Map a dialect's names to LMI's, for a dialect that takes the whole table except for `left_out`."""
    own_names = {parameter: name for name, parameter in renamed.items()}
    return {own_names.get(parameter, parameter): parameter for parameter in TABLE if parameter not in left_out}


def with_parameters(names: Mapping[str, str], *, nullable: bool = True) -> Callable[[type[M]], type[M]]:
    """Return a class decorator that adds a field for each dialect's name, with the type and help of LMI's parameter.

    The default is null, or the table's unless `nullable`. The backend checks the bounds of the value. The decorated
    class declares the fields whose type, bounds or default differ; their help is the table's too, unless they have
    their own.
    """

    def add(payload_type: type[M]) -> type[M]:
        declared = payload_type.model_fields
        added: dict[str, Any] = {
            name: _field(TABLE[parameter], nullable) for name, parameter in names.items() if name not in declared
        }
        for name in names.keys() & declared.keys():
            declared[name].description = declared[name].description or TABLE[names[name]].description
        module, doc = payload_type.__module__, payload_type.__doc__
        return create_model(payload_type.__name__, __base__=payload_type, __module__=module, __doc__=doc, **added)

    return add


def _field(parameter: FieldInfo, nullable: bool) -> tuple[Any, Any]:
    kind: Any = parameter.annotation
    if nullable:
        return kind | None, Field(None, description=parameter.description)
    return kind, Field(parameter.default, description=parameter.description)
