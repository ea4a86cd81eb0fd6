"""The images of a prompt: as a client gives them, and as a backend has put them into the prompt."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any


class ImageSource(ABC):
    """An image as the client gives it, or where it says that it is."""

    def __init__(self, place: str) -> None:
        self.place = place  # the client's name of the part that holds it, for messages

    @abstractmethod
    async def read(self) -> bytes:
        """The file, of whatever format. Raises InvalidPayload."""


@dataclass(frozen=True, slots=True)
class Image:
    """A file that was read, and not decoded yet."""

    place: str
    data: bytes


@dataclass(frozen=True, slots=True)
class ImagePrompt:
    """A prompt that holds images, once its backend has read them."""

    prompt_ids: list[int]  # each image as the tokens that it takes up in the context
    content: Any  # the backend's own
