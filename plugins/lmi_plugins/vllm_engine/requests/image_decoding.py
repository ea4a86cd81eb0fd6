"""Decoding of images in forks with limits; a few kilobytes can expand to gigapixels or hours of work."""

import os
from collections.abc import Sequence
from mmap import PROT_READ, mmap

import PIL.Image  # a dependency of vLLM

from lmi_core.errors import InvalidParameter
from lmi_core.forks.forked_function import CallFailedError, CallTooCostlyError, Cancellation, ForkedFunction
from lmi_core.generation.images import Image
from lmi_core.host.off_loop import WorkThread
from lmi_plugins.vllm_engine.requests.image_decoder import Frame

# One request's images at a time, so that their memory does not add up.
DECODING = WorkThread("lmi-images")
SECONDS = 10.0  # of CPU time for a request's images; 64 million pixels of a PNG or JPEG take one to three
MIN_SECONDS = 0.1  # for each of the others after one that took almost all
PATIENCE = 1.0  # seconds after which an image is decoded only on idle cores
MEMORY_PER_PIXEL = 32  # bytes; JPEG 2000 with transparency takes 26, most formats four to ten
MEMORY = 2**26  # bytes in addition, for the copies of a compressed file

DECODER = ForkedFunction("lmi_plugins.vllm_engine.requests.image_decoder:decoder", patience=PATIENCE)


def decode_images(
    images: Sequence[Image], formats: tuple[str, ...], max_pixels: int, cancellation: Cancellation
) -> list[PIL.Image.Image]:
    """Return the decoded images, upright.

    Raise InvalidParameter for one that cannot be decoded, or with which the images are too large in total.
    """
    decoded: list[PIL.Image.Image] = []
    memory, seconds = MEMORY + max_pixels * MEMORY_PER_PIXEL, SECONDS
    for image in images:
        rest = max_pixels - sum(each.width * each.height for each in decoded)
        with open(os.memfd_create("lmi-image"), "rb") as pixels:
            arguments = image.data, formats, rest
            try:
                found = DECODER.call(
                    seconds, *arguments, memory=memory, cancellation=cancellation, descriptors=[pixels.fileno()]
                )
            except CallTooCostlyError as error:
                late = CallFailedError(f"the images of the request take more than {SECONDS:g} seconds")
                raise unreadable(image, late if error.limit == "seconds" else error) from None
            except CallFailedError as error:
                raise unreadable(image, error) from None
            if found is None:
                raise InvalidParameter(
                    f"`{image.place}` is too large: the images of a request must have at most {max_pixels} pixels in "
                    "total (option.max_image_pixels)"
                )
            seconds = max(seconds - found[-1], MIN_SECONDS)
            decoded.append(_image(found, pixels.fileno()))
    return decoded


def _image(frame: Frame, pixels: int) -> PIL.Image.Image:
    mode, size, palette, transparency, _ = frame
    with mmap(pixels, 0, prot=PROT_READ) as mapped, memoryview(mapped) as data:
        image = PIL.Image.frombytes(mode, size, data)
    if palette is not None:
        image.putpalette(*palette)
    if transparency is not None:
        image.info["transparency"] = transparency
    return image


def unreadable(image: Image, error: Exception) -> InvalidParameter:
    """Return the error for an image that cannot be decoded."""
    return InvalidParameter(f"`{image.place}` is not a readable image: {error}")
