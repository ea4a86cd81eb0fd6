"""A request before and after it was checked against a backend."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from lmi_core.chats.images import ImagePrompt, ImageSource
from lmi_core.parameters import GenerationParameters


@dataclass(frozen=True, slots=True)
class GenerationRequest:
    """One prompt and its parameters as a dialect read them, in LMI's vocabulary. Nothing is checked yet."""

    prompt: str | list[int]  # text, or token ids
    parameters: Mapping[str, Any]
    add_special_tokens: bool = True  # around a text; a chat template has written its own
    names: Mapping[str, str] = field(default_factory=dict)  # LMI's (and `inputs`) to the client's own, for messages
    adapter: str | None = None  # one of the backend's; None: the model as it is
    fits_context: bool = False  # a `max_new_tokens` beyond the context ends with it instead of being refused
    images: tuple[ImageSource, ...] = ()  # in the order in which the prompt names them
    image_prompt: ImagePrompt | None = None  # once they are read
    ignored: Mapping[str, Any] = field(default_factory=dict)  # parameters that nobody here knows
    markers: tuple[str, ...] = ()  # texts that somebody looks for in the answer: see ValidRequest


@dataclass(frozen=True, slots=True)
class ValidRequest:
    """A request that the backend can serve as it is. Only `lmi_core.serving.validation` builds one."""

    request_id: str
    prompt: str
    prompt_ids: list[int]
    parameters: GenerationParameters
    adapter: str | None = None
    log_probs: bool = True  # whether anyone reads those of the generated tokens; a backend may leave them out if not
    image_prompt: ImagePrompt | None = None  # where it holds images
    ignored: Mapping[str, Any] = field(default_factory=dict)  # parameters that only the model's own code may know
    markers: tuple[str, ...] = ()  # special tokens that are a part of one of these are not left out of the text
