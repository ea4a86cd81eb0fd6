"""The images of a prompt: as a client sends them, and as a backend places them in the prompt."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class ImageSource:
    """An image that a client sends, or its address."""

    place: str  # the client's name for the part that contains it, for error messages
    # Returns the file's bytes, in any format; raises InvalidPayload if it cannot be downloaded or decoded
    read: Callable[[], Awaitable[bytes]]


@dataclass(frozen=True, slots=True)
class Image:
    """An image file that has been read but not decoded."""

    place: str
    data: bytes


@dataclass(frozen=True, slots=True)
class ImagePrompt:
    """A prompt with its images, after its backend has read them."""

    prompt_ids: list[int]  # the prompt, with each image expanded to its tokens in the context
    content: Any  # the images in a form that only the backend reads
