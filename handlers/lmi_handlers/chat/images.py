"""Images in chat messages, given as base64 or as links."""

import binascii
from base64 import b64decode
from typing import Any

from lmi_core.backend import Backend
from lmi_core.configuration.properties import RequestProperties
from lmi_core.errors import InvalidPayload
from lmi_core.generation.images import ImageSource
from lmi_core.host.off_loop import run_off_loop
from lmi_core.served_model import ServedModel
from lmi_handlers.chat.image_fetching import fetch_image, too_large
from lmi_handlers.chat.messages import ContentPart
from lmi_handlers.chat.request import ChatRequest

LINKS = ("http://", "https://")


class LinkedImage(ImageSource):
    def __init__(self, place: str, url: str, options: RequestProperties) -> None:
        super().__init__(place)
        self._url = url
        self._options = options

    async def read(self) -> bytes:
        return await fetch_image(self._url, self.place, self._options)


class InlineImage(ImageSource):
    """An image within the request: a data URL (`data:image/png;base64,...`) or, as in LMI, base64 alone."""

    def __init__(self, place: str, text: str, options: RequestProperties) -> None:
        super().__init__(place)
        self._text = text
        self._most = options.max_image_size

    async def read(self) -> bytes:
        return await run_off_loop(len(self._text), self._decode)

    def _decode(self) -> bytes:
        try:
            data = b64decode(self._base64(), validate=True)
        except (binascii.Error, ValueError):  # ValueError: the text is not ASCII
            raise InvalidPayload(f"`{self.place}` must be an http or https URL, or an image in base64") from None
        if len(data) > self._most:
            raise too_large(self.place, self._most)
        return data

    def _base64(self) -> str:
        if not self._text.startswith("data:"):
            return self._text
        head, _, data = self._text.partition(",")
        if not head.endswith(";base64"):
            raise InvalidPayload(f"`{self.place}` must be a data URL in base64 (data:image/png;base64,...)")
        return data


def image_sources(payload: ChatRequest, model: ServedModel) -> tuple[ImageSource, ...]:
    """Return all images in order. Raise InvalidPayload if the model or option.max_images allows fewer."""
    parts = image_parts(payload)
    if not parts:
        return ()
    options, backend = model.options, model.backend
    most = min(backend.max_images, options.max_images)
    if most < len(parts):
        raise InvalidPayload(_too_many(parts[most][0], most, payload.messages_field, backend))
    return tuple(_source(place + payload.image_member, part, options) for place, part in parts)


def image_parts(payload: ChatRequest) -> list[tuple[str, ContentPart]]:
    """Return the image parts, each with its path in the request, such as `messages.0.content.1`."""
    return [
        (payload.part_path(i, j), part)
        for i, message in enumerate(payload.messages)
        for j, part in enumerate(message.content or ())
        if part.image_url is not None
    ]


def _too_many(place: str, most: int, field: str, backend: Backend[Any]) -> str:
    if most == 0:
        return f"`{place}` is an image, but this model accepts only text on the {backend.name} backend"
    return f"`{place}` is one image too many: `{field}` must contain at most {most}"


def _source(place: str, part: ContentPart, options: RequestProperties) -> ImageSource:
    assert part.image_url is not None, part
    url = part.image_url.url
    return (LinkedImage if url.lower().startswith(LINKS) else InlineImage)(place, url, options)
