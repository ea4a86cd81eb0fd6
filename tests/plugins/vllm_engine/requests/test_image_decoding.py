"""Images that claim, or hold, far more than their bytes tell."""

import struct
import zlib
from io import BytesIO

import PIL.Image
import pytest

from lmi_core.errors import InvalidParameter
from lmi_core.generation.images import Image
from lmi_plugins.vllm_engine.requests.image_decoding import MAX_SCANS, SCAN, decode_images
from tests.processor_time import processor_time

MAX_PIXELS = 20_000_000
SECONDS = 1.0  # of CPU time, far less than to decode any of these


class NoReader:
    """A reader that must not be reached."""

    def load_bytes(self, data: bytes) -> object:
        raise AssertionError("the image was decoded")


class Pillow:
    def load_bytes(self, data: bytes) -> PIL.Image.Image:
        image = PIL.Image.open(BytesIO(data))
        image.load()
        return image


def chunk(name: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))


def png_of(width: int, height: int) -> bytes:
    header = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + header + chunk(b"IDAT", zlib.compress(bytes(1000))) + chunk(b"IEND", b"")


def gif_of(width: int, height: int) -> bytes:
    return b"GIF89a" + struct.pack("<HHBBB", width, height, 0, 0, 0) + b"\x2c" + bytes(9) + b"\x02\x00;"


def bmp_of(width: int, height: int) -> bytes:
    return b"BM" + struct.pack("<IHHI", 54, 0, 0, 54) + struct.pack("<IiiHHIIiiII", 40, width, height, 1, 24, *[0] * 6)


def saved(image: PIL.Image.Image, kind: str, **how: object) -> bytes:
    file = BytesIO()
    image.save(file, kind, **how)
    return file.getvalue()


def webp_of(width: int, height: int) -> bytes:
    """Return an animation whose canvas is as large as that; its one frame is small."""
    frames = [PIL.Image.new("RGB", (8, 8), color) for color in ("red", "blue")]
    data = saved(frames[0], "WEBP", save_all=True, append_images=frames[1:])
    at = data.index(b"VP8X") + 12
    return data[:at] + struct.pack("<I", width - 1)[:3] + struct.pack("<I", height - 1)[:3] + data[at + 6 :]


def jpeg_with_scans(count: int) -> bytes:
    data = saved(PIL.Image.new("L", (4000, 4000), 128), "JPEG", progressive=True)
    last = data[data.rindex(SCAN) : -2]
    return data[:-2] + last * (count - data.count(SCAN)) + data[-2:]


@pytest.mark.parametrize(
    "data",
    [
        png_of(60_000, 60_000),
        png_of(2**31 - 1, 2**31 - 1),
        png_of(10_000, 10_000),
        gif_of(65_535, 65_535),
        bmp_of(30_000, 30_000),
        webp_of(16_000, 16_000),
        webp_of(16_383, 16_383),
    ],
)
def test_gigapixels_are_refused_by_the_header(data: bytes) -> None:
    with processor_time() as taken, pytest.raises(InvalidParameter, match="`image` is too large: "):
        decode_images([Image("image", data)], NoReader(), MAX_PIXELS)
    assert taken.seconds < SECONDS


def test_images_are_bounded_together() -> None:
    image = saved(PIL.Image.new("L", (3000, 3000)), "PNG")
    places = [Image(f"image.{index}", image) for index in range(3)]
    with pytest.raises(InvalidParameter, match=f"`image.2` is too large: .* at most {MAX_PIXELS} pixels in total"):
        decode_images(places, NoReader(), MAX_PIXELS)
    assert [image.size for image in decode_images(places[:2], Pillow(), MAX_PIXELS)] == [(3000, 3000)] * 2


@pytest.mark.filterwarnings("ignore::PIL.Image.DecompressionBombWarning")
def test_scans_of_a_jpeg_are_bounded() -> None:
    """Each scan is 30 bytes and passes over all pixels: a megabyte of them takes ten minutes."""
    with (
        processor_time() as taken,
        pytest.raises(InvalidParameter, match=f"at most {MAX_SCANS} scans. Given: 30000"),
    ):
        decode_images([Image("image", jpeg_with_scans(30_000))], NoReader(), MAX_PIXELS)
    assert taken.seconds < SECONDS
    (usual,) = decode_images([Image("image", jpeg_with_scans(12))], Pillow(), MAX_PIXELS)
    assert usual.size == (4000, 4000)


@pytest.mark.parametrize("kind", ["GIF", "WEBP", "PNG"])
def test_one_frame_of_an_animation_is_read(kind: str) -> None:
    frames = [PIL.Image.new("RGB", (400, 400), (index % 256, index // 256, 0)) for index in range(500)]
    data = saved(frames[0], kind, save_all=True, append_images=frames[1:])
    with processor_time() as taken:
        (image,) = decode_images([Image("image", data)], Pillow(), MAX_PIXELS)
    assert taken.seconds < SECONDS / 4
    assert image.size == (400, 400)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"<html>", "its format is unknown"),
        (b"", "its format is unknown"),
        (saved(PIL.Image.new("L", (90, 90)), "PNG")[:60], "runcated"),
    ],
)
def test_what_is_no_image(data: bytes, reason: str) -> None:
    with pytest.raises(InvalidParameter, match=f"`image` is not a readable image: .*{reason}"):
        decode_images([Image("image", data)], Pillow(), MAX_PIXELS)
