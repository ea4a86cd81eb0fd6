"""Fields that a dialect takes from the table of parameters."""

import pytest
from pydantic import Field, ValidationError

from lmi_core.generation.parameters import ExtendedParameters
from lmi_core.payloads.tolerant_payload import TolerantPayload
from lmi_handlers.fields.parameter_fields import all_names, with_parameters

NAMES = {"min_tokens": "min_length", "min_p": "min_p", "seed": "seed"}


@with_parameters(NAMES)
class Nullable(TolerantPayload):
    """A request."""

    seed: int | None = Field(None, ge=7, description="The dialect's own.")


@with_parameters(NAMES, nullable=False)
class WithDefaults(TolerantPayload):
    pass


def test_types_and_help_are_the_table_s_and_the_bounds_the_backend_s() -> None:
    field = Nullable.model_fields["min_tokens"]
    assert field.description == ExtendedParameters.model_fields["min_length"].description
    assert Nullable.model_validate({"min_tokens": "-3", "min_p": 2}).model_dump() == {
        "min_tokens": -3,
        "min_p": 2.0,
        "seed": None,
    }
    with pytest.raises(ValidationError, match="valid integer"):
        Nullable.model_validate({"min_tokens": "many"})


def test_what_the_class_declares_stays() -> None:
    assert Nullable.model_fields["seed"].description == "The dialect's own."
    with pytest.raises(ValidationError, match="greater than or equal to 7"):
        Nullable.model_validate({"seed": 1})
    assert (Nullable.__name__, Nullable.__module__, Nullable.__doc__) == ("Nullable", __name__, "A request.")


def test_defaults() -> None:
    assert WithDefaults().model_dump() == {"min_tokens": 0, "min_p": 0.0, "seed": None}
    with pytest.raises(ValidationError, match="valid integer"):
        WithDefaults.model_validate({"min_tokens": None})


def test_all_names() -> None:
    names = all_names({"min_tokens": "min_length"}, {"details"})
    assert (names["min_tokens"], names["min_p"]) == ("min_length", "min_p")
    assert set(names.values()) == ExtendedParameters.model_fields.keys() - {"details"}
