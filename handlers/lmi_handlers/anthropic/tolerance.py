"""Fields of Anthropic's and vLLM's requests without effect here: accepted ones, and refused ones with the reason."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, TypeVar

from lmi_core.errors import InvalidPayload
from lmi_core.payloads.payload import quote
from lmi_core.served_model import ServedModel
from lmi_handlers.anthropic.payload import CUSTOM, CountTokensRequest
from lmi_handlers.base.anthropic_errors import ThreadRefused
from lmi_handlers.chat.reasoning import takes_limit
from lmi_handlers.fields import openai_tolerance
from lmi_handlers.fields.offered_tools import check_own_tools, hosted_names
from lmi_handlers.fields.openai_tolerance import Refusal, Tolerance

BUDGET = "thinking.budget_tokens"
NO_BUDGET = "this model's reasoning has no end that could be forced (option.reasoning_parser)"

NO_THREADS = "no conversations are kept here"
# Fields for the hosted service or its caches, which need no settings here: any value is accepted.
HINTS = frozenset(
    {
        "billing_policy",
        "cache_control",
        "diagnostics",
        "fallback_credit_token",
        "fallbacks",
        "inference_geo",
        "mm_payload",
        "return_mm_kwargs",
        "service_tier",
        "speed",
        "stream_interval",
    }
)
REFUSED = MappingProxyType(
    {
        "container": Refusal("this server does not run code"),
        "logits_processors": Refusal("requests bring no code", ([],)),
        "mcp_servers": Refusal("this server calls no other servers", ([],)),
        "thread": Refusal(NO_THREADS),
        "watermarking": Refusal("no backend marks its answers", (False,)),
    }
)

TOLERANCE = Tolerance(HINTS, REFUSED)

M = TypeVar("M", bound=CountTokensRequest)


def take_fields(given: Mapping[str, Any], payload_type: type[M], strict: bool) -> tuple[M, tuple[str, ...]]:
    """Return the payload and the names of the ignored fields.

    Raise InvalidPayload for a refused or invalid field and, if `strict`, for an ignored one.
    """
    if given.get("thread") is not None:
        raise ThreadRefused(f"`thread` must be null: {NO_THREADS}. Given: {quote(given['thread'])}")
    payload, ignored = openai_tolerance.take_fields(given, payload_type, strict, TOLERANCE)
    tools = {"tools": payload.tools or ()}
    check_own_tools(tools, CUSTOM)
    return payload, (*hosted_names(tools, CUSTOM, strict), *ignored)


def budget_without_effect(payload: CountTokensRequest, model: ServedModel) -> tuple[str, ...]:
    """Return the name of the thinking budget if the model cannot enforce it; coding agents send one to every model.

    Raise InvalidPayload if option.strict_parameters is set.
    """
    if payload.thinking is None or payload.thinking.budget_tokens is None or takes_limit(model):
        return ()
    if model.options.strict_parameters:
        raise InvalidPayload(f"`{BUDGET}` has no effect: {NO_BUDGET}. option.strict_parameters=true refuses it")
    return (BUDGET,)
