"""A request before and after validation against a backend."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from lmi_core.generation.images import ImagePrompt, ImageSource
from lmi_core.generation.parameters import GenerationParameters

PROMPT = "inputs"  # LMI's name for the prompt, beside those of its parameters


class ShorterPrompt(NamedTuple):
    """A prompt truncated to the context, and its remaining images."""

    prompt: str | list[int]
    images: tuple[ImageSource, ...] = ()


@dataclass(frozen=True, slots=True)
class GenerationRequest:
    """One prompt and its parameters as parsed by a dialect, in LMI's vocabulary, not validated yet."""

    prompt: str | list[int]  # text, or token ids
    parameters: Mapping[str, Any]
    add_special_tokens: bool = True  # around a text; a chat template writes them itself
    names: Mapping[str, str] = field(default_factory=dict)  # LMI's (and PROMPT) to the client's own, for messages
    adapter: str | None = None  # one of the backend's; None: the base model
    fits_context: bool = False  # cut a `max_new_tokens` beyond the context length instead of refusing it
    images: tuple[ImageSource, ...] = ()  # in the order in which the prompt names them
    image_prompt: ImagePrompt | None = None  # set once the images are read
    ignored: Mapping[str, Any] = field(default_factory=dict)  # unknown parameters
    markers: tuple[str, ...] = ()  # texts that a parser looks for in the answer: see ValidRequest
    shorten: Callable[[], ShorterPrompt] | None = None  # replaces the prompt; called in a thread, as it may take long


@dataclass(frozen=True, slots=True)
class ValidRequest:
    """A request that the backend can serve unchanged, built only by `lmi_core.serving.validation`."""

    request_id: str
    prompt: str
    prompt_ids: list[int]
    parameters: GenerationParameters
    adapter: str | None = None
    log_probs: bool = True  # whether generated tokens' log probs are read; if not, they may be None
    ranks: bool = False  # whether generated tokens' ranks are read; if not, they may be None
    image_prompt: ImagePrompt | None = None  # set if the prompt holds images
    ignored: Mapping[str, Any] = field(default_factory=dict)  # unknown parameters, for the model's own code
    key: str | None = None  # the name of the client's API key; None where there are none
    markers: tuple[str, ...] = ()  # special tokens that are part of one of these are kept in the text
