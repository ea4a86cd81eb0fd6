"""A backend's own parameters, which clients of OpenAI's API set next to the fields of requests."""

from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from typing import Any

from pydantic import BaseModel

from lmi_core.generation.parameters import GenerationParameters
from lmi_core.handler import Generation
from lmi_core.payloads.tolerant_payload import field_names
from lmi_core.served_model import ServedModel
from lmi_core.tolerance import NEUTRAL

JsonObject = Mapping[str, Any]


def take_own(given: JsonObject, model: ServedModel, payload_type: type[BaseModel]) -> tuple[JsonObject, JsonObject]:
    """Split the request into the dialect's fields and the backend's own parameters; shared names are the dialect's."""
    own = _own_names(model.backend.parameters_type) - field_names(payload_type)
    if own.isdisjoint(given):
        return given, {}
    rest = {name: value for name, value in given.items() if name not in own}
    return rest, {name: value for name, value in given.items() if name in own and value is not None}


def with_own(generation: Generation, own: JsonObject, path: str = "") -> Generation:
    """Return the generation with the backend's own parameters in each request; `path` is their path in the body."""
    if not own:
        return generation
    names = {name: path + name for name in own}
    return replace(
        generation,
        requests=tuple(
            replace(each, parameters={**each.parameters, **own}, names={**each.names, **names})
            for each in generation.requests
        ),
    )


@cache
def _own_names(parameters_type: type[GenerationParameters]) -> frozenset[str]:
    return field_names(parameters_type) - NEUTRAL.keys()
