"""Images in chat messages, given as base64 or as links to allowed hosts, by default at public addresses only."""

import asyncio
import binascii
from base64 import b64decode
from collections.abc import Mapping
from functools import partial
from typing import Any

import aiohttp
from yarl import URL

from lmi_core.backend import Backend
from lmi_core.configuration.properties import RequestProperties
from lmi_core.errors import InvalidPayload
from lmi_core.generation.images import ImageSource
from lmi_core.host.addresses import public_socket
from lmi_core.host.off_loop import run_off_loop
from lmi_core.served_model import ServedModel
from lmi_handlers.chat.messages import ContentPart
from lmi_handlers.chat.name_lookup import NameResolver
from lmi_handlers.chat.request import ChatRequest

LINKS = ("http://", "https://")
ANY_HOST = "*"
MAX_REDIRECTS = 3
IN_PROMPT = "![]("  # the beginning of an image in TGI's prompts, before its link and a closing parenthesis
HEADERS = {"Accept": "image/*", "Accept-Encoding": "identity"}  # a compressed body could expand to any size
NO_TIMEOUT = aiohttp.ClientTimeout(total=None)  # fetch_image has one time limit for all redirects


def image_sources(payload: ChatRequest, model: ServedModel) -> tuple[ImageSource, ...]:
    """Return all images in order. Raise InvalidPayload if the model or option.max_images allows fewer."""
    parts = image_parts(payload)
    if not parts:
        return ()
    options, backend = model.options, model.backend
    most = min(backend.max_images, options.max_images)
    if most < len(parts):
        raise InvalidPayload(_too_many(parts[most][0], most, payload.messages_field, backend))
    return tuple(
        image_source(part.image_url.url, place + payload.image_member, options)
        for place, part in parts
        if part.image_url is not None
    )


def image_parts(payload: ChatRequest) -> list[tuple[str, ContentPart]]:
    """Return the image parts, each with its path in the request, such as `messages.0.content.1`."""
    return [
        (payload.part_path(i, j), part)
        for i, message in enumerate(payload.messages)
        for j, part in enumerate(message.content or ())
        if part.image_url is not None
    ]


def images_in_prompt(
    prompt: str, parameters: Mapping[str, object], model: ServedModel
) -> tuple[str, tuple[ImageSource, ...]]:
    """Return a prompt of TGI's with placeholders for its images, and these.

    As in TGI, other models than vision models read it unchanged. Raise InvalidPayload for too many images.
    """
    backend, options = model.backend, model.options
    if not backend.max_images:
        return prompt, ()
    first, *others = prompt.split(IN_PROMPT)
    written, urls = [first], list[str]()
    for piece in others:
        url, closed, rest = piece.partition(")")
        if closed:
            urls.append(url)
            written += [backend.image_placeholder(len(urls)) or "", rest]
        else:
            written += [IN_PROMPT, piece]
    most = min(backend.max_images, options.max_images)
    if len(urls) > most:
        raise InvalidPayload(f"`inputs` must contain at most {most} images. Given: {len(urls)}")
    if urls and parameters.get("return_full_text"):
        raise InvalidPayload("`parameters.return_full_text` cannot be used with images in `inputs`")
    return "".join(written), tuple(image_source(url, "inputs", options) for url in urls)


def _too_many(place: str, most: int, field: str, backend: Backend[Any]) -> str:
    if most == 0:
        return f"`{place}` is an image, but this model accepts only text on the {backend.name} backend"
    return f"`{place}` is one image too many: `{field}` must contain at most {most}"


def image_source(url: str, place: str, options: RequestProperties) -> ImageSource:
    """Return an image given as base64 or as a link; `place` is the client's name for it."""
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


async def fetch_image(url: str, place: str, options: RequestProperties) -> bytes:
    """Download an image. Raise InvalidPayload, naming `place`, if it is not allowed, fails, or is too large."""
    try:
        async with asyncio.timeout(options.image_fetch_timeout):
            return await _fetch(URL(url), place, options)
    except TimeoutError:
        seconds = options.image_fetch_timeout
        raise _fetch_error(place, f"it took more than {seconds} seconds (option.image_fetch_timeout)") from None
    except (aiohttp.ClientError, ValueError, OSError) as error:
        raise _fetch_error(place, str(error) or type(error).__name__) from None


def _session(url: URL, private: frozenset[str]) -> aiohttp.ClientSession:
    """Return a session for a URL, which refuses private addresses unless the host is one of `private`."""
    is_private = url.raw_host is not None and url.raw_host.lower() in private
    factory = None if is_private else public_socket
    connector = aiohttp.TCPConnector(resolver=NameResolver(), socket_factory=factory, force_close=True)
    return aiohttp.ClientSession(connector=connector, headers=HEADERS, auto_decompress=False, timeout=NO_TIMEOUT)


async def _fetch(url: URL, place: str, options: RequestProperties) -> bytes:
    for _ in range(MAX_REDIRECTS + 1):
        if url.scheme not in ("http", "https") or url.raw_host is None:
            raise _fetch_error(place, f"{url} is not an http or https URL")
        if url.raw_host.lower() not in options.media_domains and ANY_HOST not in options.media_domains:
            raise _fetch_error(place, f"option.allowed_media_domains does not include {url.raw_host}")
        async with (
            _session(url, options.private_media_domains) as session,
            session.get(url, allow_redirects=False) as response,
        ):
            target = response.headers.get("Location")
            if response.status // 100 != 3 or target is None:
                return await _body(response, place, options.max_image_size)
        url = url.join(URL(target))
    raise _fetch_error(place, f"there are more than {MAX_REDIRECTS} redirects")


async def _body(response: aiohttp.ClientResponse, place: str, most: int) -> bytes:
    if response.status != 200:
        raise _fetch_error(place, f"the server answered with status {response.status}")
    body = bytearray()
    async for chunk in response.content.iter_any():
        body += chunk
        if len(body) > most:
            raise too_large(place, most)
    return bytes(body)


def too_large(place: str, most: int) -> InvalidPayload:
    return InvalidPayload(f"`{place}` must be an image of at most {most} bytes (option.max_image_size)")


def _fetch_error(place: str, reason: str) -> InvalidPayload:
    return InvalidPayload(f"`{place}` cannot be fetched: {reason}")
