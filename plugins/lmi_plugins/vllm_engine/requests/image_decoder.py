"""Decoding of an image file in a fork. It imports only Pillow, so that its process takes little memory."""

import os
import time
import warnings
from collections.abc import Callable
from io import BytesIO
from typing import Any

import PIL.Image  # a dependency of vLLM
from PIL import ImageOps, UnidentifiedImageError
from PIL.Image import DecompressionBombError, DecompressionBombWarning

STRIPE = 2**16  # pixels that are copied at a time: fresh memory takes longer than copying

# An image without its pixels: mode, size, palette with its mode, and the transparent colour or colours; then the
# seconds of CPU time that it took
Frame = tuple[str, tuple[int, int], tuple[list[int], str] | None, Any, float]
Decode = Callable[[bytes, tuple[str, ...], int, int], Frame | None]


def decoder(_: str) -> Decode:
    """Import the readers of all formats, and return the function that decodes an image."""
    PIL.Image.init()
    warnings.simplefilter("error", DecompressionBombWarning)
    return decode


def decode(data: bytes, formats: tuple[str, ...], max_pixels: int, output: int) -> Frame | None:
    """Write the pixels of the upright image to a file descriptor; return None if it has more than `max_pixels`."""
    PIL.Image.MAX_IMAGE_PIXELS = max_pixels  # at more, Pillow warns; at more than twice as many, it raises the error
    try:
        image: PIL.Image.Image = PIL.Image.open(BytesIO(data), formats=formats)
        image.load()
    except (DecompressionBombError, DecompressionBombWarning):
        return None
    except UnidentifiedImageError:  # its message is the address of a buffer
        raise ValueError("its format is unknown") from None
    try:
        ImageOps.exif_transpose(image, in_place=True)
    except MemoryError:
        raise
    except Exception:  # of invalid metadata, as in vLLM's reader
        pass
    _write(image, output)
    palette = (image.getpalette(image.palette.mode) or [], image.palette.mode) if image.palette else None
    return image.mode, image.size, palette, image.info.get("transparency"), time.process_time()


def _write(image: PIL.Image.Image, output: int) -> None:
    rows, place = max(1, STRIPE // image.width), 0
    for top in range(0, image.height, rows):
        stripe = image.crop((0, top, image.width, min(top + rows, image.height)))
        place += os.pwrite(output, stripe.tobytes(), place)
