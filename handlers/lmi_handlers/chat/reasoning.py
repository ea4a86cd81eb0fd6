"""Choice of how a chat's reasoning is parsed, limited, and combined with a guide."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from lmi_core.parsing.reasoning.parser import AnswerContext
from lmi_core.parsing.reasoning.reader import Reasoning
from lmi_core.served_model import ServedModel
from lmi_handlers.chat.reasoning_limit import reasoning_limit
from lmi_handlers.chat.request import ChatRequest
from lmi_handlers.fields.guides import Guide

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
