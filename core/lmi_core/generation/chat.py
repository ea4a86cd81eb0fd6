"""The input of chat templates."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Chat:
    """Messages and tools in transformers' form, with texts or lists of parts as contents and objects as arguments."""

    messages: list[dict[str, Any]]
    tools: list[dict[str, Any]] | None = None
    template_arguments: Mapping[str, Any] = field(default_factory=dict)  # additional variables for the template
    add_generation_prompt: bool = True  # end the prompt with the header of a new answer
    continue_final_message: bool = False  # end the prompt inside the last message, which the answer continues
    template_of_client: bool = False  # the template comes from the request, so it may be hostile
