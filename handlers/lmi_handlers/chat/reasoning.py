"""How the reasoning of a chat's answer is found, and what it means for the prompt."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from lmi_core.calls.served_model import ServedModel
from lmi_core.chats.reasoning.parser import AnswerContext
from lmi_core.chats.reasoning.reader import Reasoning
from lmi_handlers.chat.reasoning_limit import reasoning_limit
from lmi_handlers.chat.request import ChatRequest
from lmi_handlers.fields.guides import Guide

SWITCHES = ("enable_thinking", "thinking")  # what chat templates call it


@dataclass(frozen=True, slots=True)
class ReasoningUse:
    """How reasoning takes part in one chat."""

    prompt: str
    reasoning: Reasoning | None = None  # None: it is not told from the content, or there is none
    before_guide: list[str] | None = None  # `guided_reasoning`, where a guide leaves it free
    limit: Mapping[str, Any] = field(default_factory=dict)  # `reasoning_budget`, where the client gives one


def use_reasoning(
    payload: ChatRequest, model: ServedModel, prompt: str, guide: Guide | None, tools: bool
) -> ReasoningUse:
    """`tools`: the model may call some. Where a guide cannot leave the reasoning free, the prompt ends it."""
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
    if before is not None and "guided_reasoning" in model.backend.parameters_type.model_fields:
        return ReasoningUse(prompt, reasoning, before, limit)
    return ReasoningUse(prompt if continued else reasoning_format.close(prompt))
