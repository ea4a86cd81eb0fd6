"""Choice of how a chat's reasoning is parsed, limited, and combined with a guide."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from lmi_core.errors import InvalidPayload
from lmi_core.generation.tokenizer import Tokenizer
from lmi_core.parsing.reasoning.parser import AnswerContext
from lmi_core.parsing.reasoning.reader import Reasoning
from lmi_core.served_model import ServedModel
from lmi_handlers.chat.request import ChatRequest
from lmi_handlers.fields.guides import Guide
from lmi_handlers.fields.passed import NO_BUDGET

FIELD = "thinking_token_budget"
SWITCHES = ("enable_thinking", "thinking")  # names of the switch in chat templates


@dataclass(frozen=True, slots=True)
class ReasoningUse:
    """The prompt of one chat, and how the reasoning in its answer is parsed and limited."""

    prompt: str
    reasoning: Reasoning | None = None  # None: all text is content
    before_guide: list[str] | None = None  # `guided_reasoning`, if the guide applies only after the reasoning
    limit: Mapping[str, Any] = field(default_factory=dict)  # `reasoning_budget`, if the client set one


def use_reasoning(
    payload: ChatRequest, model: ServedModel, prompt: str, guide: Guide | None, tools: bool
) -> ReasoningUse:
    """Choose how to treat reasoning; `tools` means that calls are parsed.

    If the backend cannot leave reasoning unguided, the returned prompt closes it before generation.
    """
    reasoning_format = model.options.reasoning_format
    if reasoning_format is None:
        return ReasoningUse(prompt, limit=reasoning_limit(payload.thinking_token_budget, model, AnswerContext(prompt)))
    disabled = any(payload.template_arguments.get(name) is False for name in SWITCHES)
    continued = payload.messages[-1].text if payload.continue_final_message else ""
    context = AnswerContext(prompt, continued, disabled, tools and guide is None)
    reasoning = Reasoning(reasoning_format, model.backend.tokenizer, context)
    limit = reasoning_limit(payload.thinking_token_budget, model, context)
    if guide is None:
        return ReasoningUse(prompt, reasoning, limit=limit)
    before = reasoning_format.before_guide(context)
    if before is not None and model.backend.obeys("guided_reasoning"):
        return ReasoningUse(prompt, reasoning, before, limit)
    return ReasoningUse(prompt if continued else reasoning_format.close(prompt))


def reasoning_limit(budget: int | None, model: ServedModel, context: AnswerContext) -> dict[str, Any]:
    """Return `reasoning_budget`, or {} without a limit. Raise InvalidPayload if no marker can end the reasoning."""
    if budget is None or budget == NO_BUDGET:
        return {}
    reasoning_format = model.options.reasoning_format
    if reasoning_format is None:
        raise InvalidPayload(
            f"`{FIELD}` requires option.reasoning_parser, the format in which the model marks its reasoning. Given: "
            f"{budget}"
        )
    markers = reasoning_format.markers_of(context)
    if markers is None:
        raise InvalidPayload(
            f"`{FIELD}` must be null or {NO_BUDGET} with option.reasoning_parser={model.options.reasoning_parser}, "
            f"whose reasoning does not end with a single marker. Given: {budget}"
        )
    tokenizer = model.backend.tokenizer
    starts = [tokenizer.encode(marker, False) for marker in markers.starts]
    # The shortest comes first, because it is the model's own.
    ends = sorted((tokenizer.encode(marker, False) for marker in markers.ends), key=len)
    others = [tokenizer.encode(marker, False) for marker in markers.others]
    if not all(ends):
        raise InvalidPayload(f"`{FIELD}` requires a tokenizer that can encode {markers.ends[0]!r}. Given: {budget}")
    limit = {"tokens": budget, "starts": starts, "ends": ends + others, "inside": markers.inside}
    return {"reasoning_budget": limit}


def takes_limit(model: ServedModel) -> bool:
    """Return whether the model's reasoning can be limited: a marker ends it, and the backend can force the marker."""
    reasoning_format = model.options.reasoning_format
    if reasoning_format is None or reasoning_format.markers_of(AnswerContext("")) is None:
        return False
    return model.backend.obeys("reasoning_budget")


def completion_context(prompt: str | list[int], tokenizer: Tokenizer) -> AnswerContext:
    """Return the context of a prompt without a chat, in which reasoning counts only if the prompt itself opens it."""
    if not isinstance(prompt, str):
        pieces = [tokenizer.token_bytes(token_id) for token_id in prompt if 0 <= token_id < tokenizer.vocabulary_size]
        prompt = b"".join(pieces).decode(errors="replace")
    return AnswerContext(prompt, continued=prompt)
