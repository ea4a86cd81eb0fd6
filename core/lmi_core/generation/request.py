"""A request before and after validation against a backend."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from lmi_core.generation.images import ImagePrompt, ImageSource
from lmi_core.generation.parameters import GenerationParameters

PROMPT = "inputs"  # LMI's name of the prompt, used with the names of its parameters


class ShorterPrompt(NamedTuple):
    """A prompt truncated to the context, and its remaining images."""

    prompt: str | list[int]
    images: tuple[ImageSource, ...] = ()


@dataclass(frozen=True, slots=True)
class GenerationRequest:
    """One prompt and its parameters as parsed by a dialect, in LMI's vocabulary, not validated yet."""

    prompt: str | list[int]  # text, or token ids
    parameters: Mapping[str, Any]
    add_special_tokens: bool = True  # add them to a text prompt; a chat template writes them itself
    names: Mapping[str, str] = field(default_factory=dict)  # the client's names by LMI's (and PROMPT), for errors
    adapter: str | None = None  # one of the backend's adapters; None means the base model
    fits_context: bool = False  # cut a `max_new_tokens` beyond the context length instead of refusing it
    images: tuple[ImageSource, ...] = ()  # the images, in the order of their places in the prompt
    image_prompt: ImagePrompt | None = None  # set once the images have been read
    ignored: Mapping[str, Any] = field(default_factory=dict)  # unknown parameters
    markers: tuple[str, ...] = ()  # texts that a parser looks for in the output: see ValidRequest
    # Returns a shorter prompt; called in a thread, because it may be slow
    shorten: Callable[[], ShorterPrompt] | None = None
    max_length: int | None = None  # maximum tokens of prompt and output together; replaces `max_new_tokens`


@dataclass(frozen=True, slots=True)
class ValidRequest:
    """A request that the backend can serve unchanged, built only by `lmi_core.serving.validation`."""

    request_id: str
    prompt: str
    prompt_ids: list[int]
    parameters: GenerationParameters
    adapter: str | None = None
    log_probs: bool = True  # whether generated tokens need log probs; if not, they may be None
    ranks: bool = False  # whether generated tokens need ranks; if not, they may be None
    image_prompt: ImagePrompt | None = None  # set if the prompt holds images
    ignored: Mapping[str, Any] = field(default_factory=dict)  # unknown parameters, for the model's own code
    key: str | None = None  # the name of the client's API key; None without keys
    markers: tuple[str, ...] = ()  # special tokens to keep in the text if they are part of one of these
