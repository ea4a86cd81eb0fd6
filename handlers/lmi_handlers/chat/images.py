"""Images in chat messages, given as base64 or as links."""

import binascii
from base64 import b64decode
from functools import partial
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
    if url.lower().startswith(LINKS):
        return ImageSource(place, lambda: fetch_image(url, place, options))
    return ImageSource(place, lambda: run_off_loop(len(url), partial(_decode, url, place, options.max_image_size)))


def _decode(text: str, place: str, most: int) -> bytes:
    """Return an image within the request: a data URL (`data:image/png;base64,...`) or, as in LMI, base64 alone."""
    if text.startswith("data:"):
        head, _, text = text.partition(",")
        if not head.endswith(";base64"):
            raise InvalidPayload(f"`{place}` must be a data URL in base64 (data:image/png;base64,...)")
    try:
        data = b64decode(text, validate=True)
    except (binascii.Error, ValueError):  # ValueError: the text is not ASCII
        raise InvalidPayload(f"`{place}` must be an http or https URL, or an image in base64") from None
    if len(data) > most:
        raise too_large(place, most)
    return data
