"""Decoding of images; a few kilobytes can expand to gigapixels or hours of work."""

from collections.abc import Sequence
from io import BytesIO
from typing import Any, Protocol

import PIL.Image  # a dependency of vLLM
from PIL import UnidentifiedImageError

from lmi_core.errors import InvalidParameter
from lmi_core.generation.images import Image
from lmi_core.host.off_loop import WorkThread

# One request's images at a time, so that their memory, at least three bytes per pixel, does not add up.
DECODING = WorkThread("lmi-images")
JPEG = ("JPEG", "MPO")
SCAN = b"\xff\xda"  # starts a scan of a JPEG, and does not occur in its data
MAX_SCANS = 50  # encoders write about ten; each takes as long as all pixels do, and may have only 30 bytes

BOMBS = (
    PIL.Image.DecompressionBombError,
    PIL.Image.DecompressionBombWarning,
)  # Pillow warns of those not quite as large


class Reader(Protocol):
    """A reader of image files."""

    def load_bytes(self, data: bytes) -> Any: ...


def decode_images(images: Sequence[Image], reader: Reader, max_pixels: int) -> list[Any]:
    """Return the decoded images.

    Raise InvalidParameter for one that cannot be read, and, before decoding, if they are too large in total.
    """
    pixels = 0
    for image in images:
        pixels += _pixels(image)
        if pixels > max_pixels:
            raise InvalidParameter(
                f"`{image.place}` is too large: the images of a request must have at most {max_pixels} pixels in total "
                "(option.max_image_pixels)"
            )
    return [_decode(image, reader) for image in images]


def _pixels(image: Image) -> int:
    """Return the number of pixels in the file's header."""
    try:
        with PIL.Image.open(BytesIO(image.data)) as header:
            width, height = header.size
            is_jpeg = header.format in JPEG
    except BOMBS:
        raise InvalidParameter(
            f"`{image.place}` is too large: its header announces more pixels than any image has"
        ) from None
    except Exception as error:  # the reader of a format may raise anything
        raise _unreadable(image, error) from error
    if is_jpeg and (scans := image.data.count(SCAN)) > MAX_SCANS:
        raise InvalidParameter(f"`{image.place}` must be a JPEG of at most {MAX_SCANS} scans. Given: {scans}")
    return int(width * height)


def _decode(image: Image, reader: Reader) -> Any:
    try:
        return reader.load_bytes(image.data)
    except Exception as error:
        raise _unreadable(image, error) from error


def _unreadable(image: Image, error: Exception) -> InvalidParameter:
    """Return the error with the reason; Pillow's own message for an unknown format is the address of a buffer."""
    unknown = isinstance(error, UnidentifiedImageError) or isinstance(error.__cause__, UnidentifiedImageError)
    return InvalidParameter(f"`{image.place}` is not a readable image: {'its format is unknown' if unknown else error}")
