"""Undeclared fields of OpenAI's and vLLM's requests: accepted ones, refused ones, and a backend's own parameters."""

from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from types import MappingProxyType
from typing import Any, NamedTuple, TypeVar

from pydantic import BaseModel

from lmi_core.errors import InvalidPayload
from lmi_core.generation.parameters import GenerationParameters
from lmi_core.handler import Generation
from lmi_core.payloads.payload import quote
from lmi_core.payloads.tolerant_payload import field_names, take_known
from lmi_core.served_model import ServedModel
from lmi_core.tolerance import NEUTRAL

JsonObject = Mapping[str, Any]

M = TypeVar("M", bound=BaseModel)


class Refusal(NamedTuple):
    """A field that is refused because it would change the answer, unless it has one of the `neutral` values."""

    reason: str
    neutral: tuple[object, ...] = ()


# Hints for a hosted service, or for features that this server does not have: any value is accepted.
HINTS = frozenset(
    {
        "client_metadata",
        "guided_decoding_backend",
        "metadata",
        "mm_payload",
        "prediction",
        "prompt_cache_key",
        "prompt_cache_options",
        "prompt_cache_retention",
        "return_mm_kwargs",
        "return_token_offsets",
        "routed_experts_prompt_start",
        "safety_identifier",
        "service_tier",
        "session_id",
        "store",
        "stream_interval",
        "verbosity",
    }
)
_NO_IMAGES = "only chats may contain images"
REFUSED = MappingProxyType(
    {
        "audio": Refusal("answers are always text"),
        "logits_processors": Refusal("requests cannot bring code", ([],)),
        "media_io_kwargs": Refusal(_NO_IMAGES, ({},)),
        "mm_processor_kwargs": Refusal(_NO_IMAGES, ({},)),
        "moderation": Refusal("requests and answers are not moderated"),
        "modalities": Refusal("answers are always text", ([], ["text"])),
        "prompt_embeds": Refusal("prompts must be strings or token ids", ([],)),
        "watermarking": Refusal("answers cannot be watermarked", (False,)),
    }
)


class Tolerance(NamedTuple):
    """The fields of a dialect without effect here: accepted ones, and refused ones; others are unknown fields."""

    hints: frozenset[str]
    refused: Mapping[str, Refusal]


OPENAI = Tolerance(HINTS, REFUSED)


def take_fields(
    given: Mapping[str, Any], payload_type: type[M], strict: bool, tolerance: Tolerance = OPENAI
) -> tuple[M, tuple[str, ...]]:
    """Return the payload and the names of the unknown fields.

    Raise InvalidPayload for a refused or invalid field and, if `strict`, for an unknown one.
    """
    kept: dict[str, Any] = {}
    fields = payload_type.model_fields
    for name, value in given.items():
        if name in fields:
            kept[name] = value
        elif name in tolerance.refused:
            refuse(name, value, tolerance.refused[name])
        elif name not in tolerance.hints:
            kept[name] = value
    return take_known(kept, payload_type, strict)


def refuse(name: str, value: object, refused: Refusal) -> None:
    """Raise InvalidPayload unless the value is null or a neutral one."""
    reason, neutral = refused
    if value is not None and not any(value == each and type(value) is type(each) for each in neutral):
        needed = " or ".join(["null", *map(quote, neutral)])
        raise InvalidPayload(f"`{name}` must be {needed}: {reason}. Given: {quote(value)}")


def take_own(given: JsonObject, model: ServedModel, payload_type: type[BaseModel]) -> tuple[JsonObject, JsonObject]:
    """Split a request into the dialect's fields and the backend's own parameters, which clients set next to them.

    Shared names are the dialect's.
    """
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
