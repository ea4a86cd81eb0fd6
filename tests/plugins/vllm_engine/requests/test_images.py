"""Images in chats of a vision model in vLLM's own engine."""

import asyncio
import struct
import zlib
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
from PIL import Image, ImageColor

from lmi_core.forks.forked_function import Cancellation
from lmi_core.generation.images import Image as ImageFile
from lmi_core.generation.images import ImageSource
from lmi_core.generation.output import GenerationOutput
from lmi_core.generation.request import GenerationRequest
from lmi_core.serving.validation import validate_all
from lmi_plugins.vllm_engine.requests import image_decoding
from tests.archive_server import archive_server
from tests.conftest import Answer, running_server
from tests.plugins.vllm_engine.requests.test_image_decoding import chunk, jpeg_with_scans, saved
from tests.plugins.vllm_engine.requests.tiny_vision import TOKENS_OF_IMAGE, data_url, image_part, png, save_vision_model
from tests.plugins.vllm_server import VllmServer

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.timeout(300)]

TEXT_TEMPLATE = "{% for message in messages %}<|user|>{{ message.content }}<|end|>{% endfor %}<|assistant|>"
METADATA = "http://169.254.169.254/latest/meta-data/"  # of a machine in the cloud, with its keys
MAX_PIXELS = 10_000
QUESTION = {"type": "text", "text": "What is this?"}


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def vision(vllm_environment: None, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[VllmServer]:
    directory = tmp_path_factory.mktemp("vision") / "model"
    directory.mkdir()
    save_vision_model(directory)
    with (directory / "serving.properties").open("a") as properties:
        properties.write(f"option.allowed_media_domains=*\noption.max_image_pixels={MAX_PIXELS}\n")
    async with running_server(directory) as server:
        yield VllmServer(server)


def png_bomb(side: int) -> bytes:
    """Return a black square, of a thousandth of the bytes that it is in memory."""
    packer = zlib.compressobj(9)
    data = b"".join(packer.compress(bytes(1 + 3 * side)) for _ in range(side)) + packer.flush()
    header = struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", data) + chunk(b"IEND", b"")


def messages(*images: bytes) -> list[dict[str, Any]]:
    return [{"role": "user", "content": [*(image_part(data_url(image)) for image in images), QUESTION]}]


async def ask(vision: VllmServer, *images: bytes, path: str = "/v1/chat/completions", **fields: Any) -> Answer:
    body = {"messages": messages(*images), "max_tokens": 12, "temperature": 0} | fields
    return await vision.server.post(path, body)


async def text(vision: VllmServer, *images: bytes, **fields: Any) -> str:
    answer = await ask(vision, *images, **fields)
    assert answer.status == 200, answer.body
    return str(answer.json()["choices"][0]["message"]["content"])


async def own_output(vision: VllmServer, *images: bytes) -> Any:
    """Return vLLM's own output for the same messages."""
    from vllm import SamplingParams
    from vllm.renderers.params import ChatParams
    from vllm.sampling_params import RequestOutputKind

    _, (prompt,) = await vision.engine.renderer.render_chat_async([messages(*images)], ChatParams())
    sampling = SamplingParams(temperature=0, max_tokens=12, output_kind=RequestOutputKind.FINAL_ONLY)
    outputs = [output async for output in vision.engine.generate(prompt, sampling, f"own-{len(images)}")]
    return outputs[-1]


@pytest.mark.parametrize("images", [(png("red"),), (png("blue"), png("red")), (png("red", side=100),)])
async def test_answers_as_vllm_itself(vision: VllmServer, images: tuple[bytes, ...]) -> None:
    answer = (await ask(vision, *images)).json()
    own = await own_output(vision, *images)
    assert answer["choices"][0]["message"]["content"] == own.outputs[0].text
    assert answer["usage"]["prompt_tokens"] == len(own.prompt_token_ids)


async def test_sees_what_the_image_shows_and_their_order(vision: VllmServer) -> None:
    red, blue = png("red"), png("blue")
    texts = [await text(vision, *images) for images in ((red,), (blue,), (red, blue), (blue, red), ())]
    assert len(set(texts)) == 5
    assert await text(vision, red) == texts[0]


async def test_an_image_takes_up_tokens(vision: VllmServer) -> None:
    counts = [(await ask(vision, *[png("red")] * n)).json()["usage"]["prompt_tokens"] for n in range(4)]
    assert [count - counts[0] for count in counts] == [0, TOKENS_OF_IMAGE, 2 * TOKENS_OF_IMAGE, 3 * TOKENS_OF_IMAGE]


async def test_template_of_texts(vision: VllmServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vision.server.model, "chat_template", TEXT_TEMPLATE)
    without, red, blue = [(await ask(vision, *images)).json() for images in ((), (png("red"),), (png("blue"),))]
    line_break = 1
    assert red["usage"]["prompt_tokens"] == without["usage"]["prompt_tokens"] + TOKENS_OF_IMAGE + line_break
    assert red["choices"] != blue["choices"]


async def test_images_in_prompts_of_tgi(vision: VllmServer) -> None:
    red, blue = (f"![]({data_url(png(colour))})" for colour in ("red", "blue"))
    texts = []
    for images in (red, blue, red + blue, blue + red, ""):
        body = {"inputs": f"{images}What is this?", "parameters": {"max_new_tokens": 12}}
        answer = await vision.server.post("/generate", body)
        assert answer.status == 200, answer.body
        texts.append(answer.json()["generated_text"])
    assert len(set(texts)) == 5


async def test_lmi_stream(vision: VllmServer) -> None:
    whole = await text(vision, png("red"))
    lines = (await ask(vision, png("red"), path="/invocations", stream=True)).json_lines()
    assert "".join(line["choices"][0]["delta"].get("content", "") for line in lines) == whole


async def test_several_sequences(vision: VllmServer) -> None:
    answer = (await ask(vision, png("red"), n=2)).json()
    assert [choice["message"]["content"] for choice in answer["choices"]] == [await text(vision, png("red"))] * 2


async def found(vision: VllmServer, color: str, **parameters: Any) -> GenerationOutput:
    """Return the output for an image with parameters that chats do not have."""
    model = vision.server.model

    async def read() -> bytes:
        return png(color)

    image = ImageSource("image", read)
    request = GenerationRequest("<|user|><image>What is this?<|end|><|assistant|>", parameters, images=(image,))
    requests = await validate_all([request], model.backend, "by-hand")
    output = GenerationOutput(requests)
    async for step in model.generate(requests):
        output.add(step)
    return output


async def test_beam_search(vision: VllmServer) -> None:
    one, red, blue = [
        await found(vision, color, num_beams=num_beams, max_new_tokens=8)
        for num_beams, color in ((1, "red"), (3, "red"), (3, "blue"))
    ]
    assert red.best_sequence.cumulative_log_prob >= one.best_sequence.cumulative_log_prob
    assert red.best_sequence.text != blue.best_sequence.text


async def test_log_probs_of_the_prompt(vision: VllmServer) -> None:
    output = await found(vision, "red", details=True, decoder_input_details=True)
    (prefill,) = output.prefill
    assert prefill is not None
    assert [token.id for token in prefill] == output.request.prompt_ids
    assert len(prefill) == 8 + TOKENS_OF_IMAGE


async def test_truncated_prompt(vision: VllmServer) -> None:
    error = (await ask(vision, png("red"), truncate_prompt_tokens=5)).json()["error"]
    assert error["message"] == "`truncate_prompt_tokens` cannot be used with images, which it could cut off"


async def test_rest_of_the_context_is_what_images_leave(vision: VllmServer) -> None:
    refused = await ask(vision, png("red"), max_tokens=1024 - 14)
    assert refused.status == 400
    message = "`max_tokens` must be at most 1009 after a prompt of 15 tokens (the model's context is 1024). Given: 1010"
    assert refused.json()["error"]["message"].endswith(f"However, {message}")


async def test_broken_image(vision: VllmServer) -> None:
    for data in (b"GIF89a", png("red")[:60], b""):
        error = (await ask(vision, png("blue"), data)).json()["error"]
        assert error["message"].startswith("`messages.0.content.1.image_url.url` is not a readable image")
        assert "object at" not in error["message"]


async def test_an_image_that_takes_too_long(vision: VllmServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(image_decoding, "SECONDS", 0.1)
    monkeypatch.setattr(vision.backend._service, "_max_image_pixels", 4000 * 4000)
    answer = await ask(vision, jpeg_with_scans(3000))
    assert answer.status == 400
    assert answer.json()["error"]["message"] == (
        "`messages.0.content.0.image_url.url` is not a readable image: the images of the request take more than "
        "0.1 seconds"
    )


async def test_an_image_whose_client_has_gone_holds_up_no_others(
    vision: VllmServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, loop, decode = asyncio.Event(), asyncio.get_running_loop(), image_decoding.DECODER.call

    def call(*arguments: Any, **limits: Any) -> Any:
        loop.call_soon_threadsafe(begun.set)
        return decode(*arguments, **limits)

    monkeypatch.setattr(image_decoding, "SECONDS", 1000.0)
    monkeypatch.setattr(vision.backend._service, "_max_image_pixels", 4000 * 4000)
    monkeypatch.setattr(image_decoding.DECODER, "call", call)
    endless = asyncio.create_task(ask(vision, jpeg_with_scans(20_000)))
    await begun.wait()
    endless.cancel()
    assert await text(vision, png("red"))


async def test_hostile_images_beside_others(vision: VllmServer) -> None:
    colors = ("red", "blue", "green") * 2
    expected = [await text(vision, png(color)) for color in colors]
    with archive_server() as inside:
        secret = inside.put("secret.png", png("red"))
        urls = [data_url(png_bomb(side=10_000)), secret, secret.replace("127.0.0.1", "localhost"), METADATA] * 3
        asked = [{"messages": [{"role": "user", "content": [image_part(url), QUESTION]}]} for url in urls]
        texts = asyncio.gather(*(text(vision, png(color)) for color in colors))
        refused = await asyncio.gather(*(vision.server.post("/v1/chat/completions", body) for body in asked))
        assert await texts == expected
        assert inside.requests == []
    for url, answer in zip(urls, refused, strict=True):
        assert answer.status == 400, answer.body
        why = "pixels" if url.startswith("data:") else "the host is not on the Internet"
        assert why in answer.json()["error"]["message"]


async def test_too_many_images(vision: VllmServer) -> None:
    answer = await ask(vision, *[png("red")] * 4)
    assert answer.status == 400
    message = "`messages.0.content.3` is one image too many: `messages` must contain at most 3"
    assert answer.json()["error"]["message"] == message


async def test_model_that_takes_only_text(vllm: VllmServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vllm.server.model, "chat_template", TEXT_TEMPLATE)
    answer = await ask(vllm, png("red"))
    assert answer.status == 400
    message = "`messages.0.content.0` is an image, but this model accepts only text on the vllm backend"
    assert answer.json()["error"]["message"] == message


async def test_too_many_pixels(vision: VllmServer) -> None:
    large = png("red", side=100)
    assert (await ask(vision, large)).status == 200
    error = (await ask(vision, large, large)).json()["error"]
    message = (
        f"`messages.0.content.1.image_url.url` is too large: the images of a request must have at most {MAX_PIXELS} "
        "pixels in total (option.max_image_pixels)"
    )
    assert error["message"] == message


def pictures() -> dict[str, bytes]:
    """Return files of every kind of pixels and orientation."""
    grey = Image.linear_gradient("L").resize((64, 40))
    colours = Image.merge("RGB", (grey, grey.rotate(90), grey.rotate(180)))
    palette = colours.quantize(16)
    turned = {}
    for orientation in range(1, 9):
        exif = Image.Exif()
        exif[0x112] = orientation
        turned[f"turned {orientation}"] = saved(colours, "JPEG", exif=exif.tobytes())
    return turned | {
        "translucent": saved(Image.merge("RGBA", (*colours.split(), grey)), "PNG"),
        "palette": saved(palette, "PNG"),
        "palette with a transparent colour": saved(palette, "GIF", transparency=3),
        "palette with translucent colours": saved(palette, "PNG", transparency=bytes(range(0, 160, 10))),
        "transparent colour": saved(colours, "PNG", transparency=colours.getpixel((0, 0))),
        "grey": saved(grey, "PNG", transparency=0),
        "black and white": saved(grey.convert("1"), "PNG"),
        "16 bits": saved(Image.new("I;16", (64, 40), 300), "PNG"),
        "printed": saved(colours.convert("CMYK"), "TIFF"),
        "numbers": saved(grey.convert("F"), "TIFF"),
    }


@pytest.mark.filterwarnings("ignore:Palette images with Transparency")
@pytest.mark.parametrize("mode", [None, "RGB", "RGBA", "L"])
async def test_images_are_read_as_by_vllm(mode: str | None) -> None:
    from lmi_plugins.vllm_engine.library import ImageReader
    from lmi_plugins.vllm_engine.requests.images import read_images

    reader = ImageReader(image_mode=mode, rgba_background_color=(10, 20, 30))
    for name, data in pictures().items():
        (read,) = read_images([ImageFile(name, data)], reader, MAX_PIXELS, Cancellation())
        own = reader.load_bytes(data)
        assert (read.media.mode, read.media.size) == (own.media.mode, own.media.size), name
        assert read.media.tobytes() == own.media.tobytes(), name
        assert (read.original_bytes, read.io_config) == (own.original_bytes, own.io_config), name


def transparent(colour: str) -> bytes:
    """A PNG of nothing but transparent pixels, whose own colour nobody sees."""
    return saved(Image.new("RGBA", (32, 32), (*ImageColor.getrgb(colour)[:3], 0)), "PNG")


async def test_how_images_are_read(vision: VllmServer) -> None:
    """A transparent image gets the background that the request names, otherwise white."""
    glass = transparent("green")
    for colour, rgb in (("red", [255, 0, 0]), ("blue", [0, 0, 255])):
        asked = {"image": {"rgba_background_color": rgb}}
        assert await text(vision, glass, media_io_kwargs=asked) == await text(vision, png(colour))
    assert await text(vision, glass) == await text(vision, png("white"))
    assert await text(vision, png("red"), media_io_kwargs={"video": {"num_frames": 4}}) == await text(
        vision, png("red")
    )


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"rgba_background_color": "red"}, "`media_io_kwargs.image` cannot be used: rgba_background_color must be a "),
        ({"image_mode": "XYZ"}, "`media_io_kwargs.image.image_mode` must be null or one of 1, CMYK, "),
        ({"image_mode": ["RGB"]}, "`media_io_kwargs.image.image_mode` must be null or one of 1, CMYK, "),
    ],
)
async def test_images_that_cannot_be_read_so(vision: VllmServer, asked: dict[str, Any], message: str) -> None:
    answer = await ask(vision, png("red"), media_io_kwargs={"image": asked})
    assert answer.status == 400, answer.body
    assert answer.json()["error"]["message"].startswith(message)


async def test_the_models_own_processor_of_images(vision: VllmServer) -> None:
    count = (await ask(vision, png("red"))).json()["usage"]["prompt_tokens"]
    split = await ask(
        vision, png("red"), mm_processor_kwargs={"size": {"longest_edge": 64}, "do_image_splitting": True}
    )
    assert split.status == 200, split.body
    assert split.json()["usage"]["prompt_tokens"] > count
    refused = await ask(vision, png("red"), mm_processor_kwargs={"size": "large"})
    assert refused.status == 400, refused.body
    assert refused.json()["error"]["message"].startswith("vLLM cannot put the images into the prompt: ")


async def test_only_who_is_trusted_says_how_images_are_read(vllm: VllmServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vllm.server.model, "chat_template", TEXT_TEMPLATE)
    for name in ("mm_processor_kwargs", "media_io_kwargs"):
        asked: dict[str, Any] = {name: {"image": {"size": 1}}}
        answer = await ask(vllm, **asked)
        assert answer.status == 400
        message = f"`{name}` is not allowed in requests, because it changes how much CPU time and memory images take: "
        assert answer.json()["error"]["message"].startswith(message)
