"""Images that claim, or hold, far more than their bytes tell."""

import os
import signal
import struct
import zlib
from collections.abc import Callable
from io import BytesIO

import PIL.Image
import pytest

from lmi_core.errors import InvalidParameter
from lmi_core.forks.forked_function import Cancellation, ForkedFunction
from lmi_core.generation.images import Image
from lmi_plugins.vllm_engine.requests import image_decoding

MAX_PIXELS = 20_000_000
FORMATS = ("BMP", "GIF", "JPEG", "PNG", "WEBP")
SCAN = b"\xff\xda"  # starts a scan of a JPEG
TOO_LONG = "is not a readable image: the images of the request take more than"


def decode(*files: bytes) -> list[PIL.Image.Image]:
    images = [Image(f"image.{index}", data) for index, data in enumerate(files)]
    return image_decoding.decode_images(images, FORMATS, MAX_PIXELS, Cancellation())


def crasher(_: str) -> Callable[..., None]:
    return lambda *arguments: os.kill(os.getpid(), signal.SIGSEGV)


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
    with pytest.raises(InvalidParameter, match=r"`image\.0` is too large: "):
        decode(data)


def test_images_are_bounded_together() -> None:
    image = saved(PIL.Image.new("L", (3000, 3000)), "PNG")
    with pytest.raises(InvalidParameter, match=rf"`image\.2` is too large: .* at most {MAX_PIXELS} pixels in total"):
        decode(image, image, image)
    assert [each.size for each in decode(image, image)] == [(3000, 3000)] * 2


def test_time_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each scan is 30 bytes and passes over all pixels: a megabyte of them takes ten minutes."""
    (usual,) = decode(jpeg_with_scans(12))
    assert usual.size == (4000, 4000)
    monkeypatch.setattr(image_decoding, "SECONDS", 0.5)
    with pytest.raises(InvalidParameter, match=rf"^`image\.1` {TOO_LONG} 0\.5 seconds$"):
        decode(saved(PIL.Image.new("L", (9, 9)), "PNG"), jpeg_with_scans(30_000))


def test_time_is_bounded_for_all_images_together(monkeypatch: pytest.MonkeyPatch) -> None:
    image = saved(PIL.Image.new("L", (9, 9)), "PNG")
    left: list[float] = []

    def call(seconds: float, *_: object, **__: object) -> object:
        left.append(seconds)
        return "L", (1, 1), None, None, 4.0

    monkeypatch.setattr(image_decoding.DECODER, "call", call)
    monkeypatch.setattr(image_decoding, "_image", lambda *_: PIL.Image.new("L", (1, 1)))
    decode(*[image] * 5)
    assert left == pytest.approx([10, 6, 2, 0.1, 0.1])


def test_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    image = saved(PIL.Image.new("RGB", (4000, 4000)), "PNG")
    monkeypatch.setattr(image_decoding, "MEMORY", 2**25)
    monkeypatch.setattr(image_decoding, "MEMORY_PER_PIXEL", 0)
    with pytest.raises(InvalidParameter, match=r"^`image\.0` is not a readable image: .* 0\.03125 GiB of memory$"):
        decode(image)


def test_a_crash_is_an_error_of_the_image(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(image_decoding, "DECODER", ForkedFunction(f"{__name__}:crasher"))
    with pytest.raises(
        InvalidParameter, match=r"^`image\.0` is not a readable image: its process ended with signal 11$"
    ):
        decode(b"")


@pytest.mark.parametrize("kind", ["GIF", "WEBP", "PNG"])
def test_one_frame_of_an_animation_is_read(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    frames = [PIL.Image.new("RGB", (400, 400), (index % 256, index // 256, 0)) for index in range(500)]
    data = saved(frames[0], kind, save_all=True, append_images=frames[1:])
    monkeypatch.setattr(image_decoding, "SECONDS", 0.25)
    assert [image.size for image in decode(data)] == [(400, 400)]


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"<html>", "its format is unknown"),
        (b"", "its format is unknown"),
        (saved(PIL.Image.new("L", (90, 90)), "TIFF"), "its format is unknown"),  # not one of FORMATS
        (saved(PIL.Image.new("L", (90, 90)), "PNG")[:60], "runcated"),
    ],
)
def test_what_is_no_image(data: bytes, reason: str) -> None:
    with pytest.raises(InvalidParameter, match=rf"`image\.0` is not a readable image: .*{reason}"):
        decode(data)
