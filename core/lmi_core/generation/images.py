"""The images of a prompt: as a client sends them, and as a backend places them in the prompt."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any


class ImageSource(ABC):
    """An image that a client sends, or its address."""

    def __init__(self, place: str) -> None:
        self.place = place  # the client's name for the part that contains it, for error messages

    @abstractmethod
    async def read(self) -> bytes:
        """Return the file's bytes, in any format. Raise InvalidPayload if it cannot be downloaded or decoded."""


@dataclass(frozen=True, slots=True)
class Image:
    """An image file that has been read but not decoded."""

    place: str
    data: bytes


@dataclass(frozen=True, slots=True)
class ImagePrompt:
    """A prompt with its images, after its backend has read them."""

    prompt_ids: list[int]  # with each image expanded to its tokens in the context
    content: Any  # the images in a form that only the backend reads
