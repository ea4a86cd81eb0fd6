"""Images in prompts, which vLLM's processor of the model reads and places."""

from collections.abc import Sequence
from functools import partial
from typing import Any

import PIL.Image  # a dependency of vLLM
from PIL.Image import MODES

from lmi_core.errors import InvalidParameter
from lmi_core.forks.forked_function import Cancellation
from lmi_core.generation.images import Image, ImagePrompt
from lmi_plugins.vllm_engine.library import (
    ALLOWED_IMAGE_FORMATS,
    AsyncLLM,
    ImageReader,
    MediaWithBytes,
    convert_image_mode,
    get_model_cls,
)
from lmi_plugins.vllm_engine.requests.image_decoding import DECODING, decode_images, unreadable
from lmi_plugins.vllm_engine.requests.vllm_fields import VllmFields

IMAGE = "image"  # vLLM's name of this modality


class VllmImages:
    """The maximum number of images, and their placeholders in prompts; unchanged by restarts of the engine."""

    def __init__(self, engine: AsyncLLM) -> None:
        config = engine.model_config
        self._model = get_model_cls(config) if config.supports_multimodal_inputs else None
        self.most = 0
        if self._model is not None:
            self.most = int(engine.renderer.get_mm_processor().info.allowed_mm_limits.get(IMAGE, 0))

    def placeholder(self, number: int) -> str | None:
        """Return the placeholder of an image in a prompt; None if the model accepts no images."""
        return None if self._model is None else self._model.get_placeholder_str(IMAGE, number)


async def place_images(
    engine: AsyncLLM, prompt_ids: list[int], images: Sequence[Image], passed: VllmFields, max_pixels: int
) -> ImagePrompt:
    """Return the prompt with its images placed. Raise InvalidParameter for one that cannot be read."""
    cancellation = Cancellation()
    try:
        read = await DECODING.run(partial(read_images, images, _reader(engine, passed), max_pixels, cancellation))
    finally:
        cancellation.cancel()  # the client may have disconnected
    prompt: dict[str, Any] = {"prompt_token_ids": prompt_ids, "multi_modal_data": {IMAGE: read}}
    if passed.mm_processor_kwargs:
        prompt["mm_processor_kwargs"] = passed.mm_processor_kwargs
    try:
        # vLLM's other cache requires that the engine sees every prompt in turn, but prompts may be refused or dropped
        # here.
        (content,) = await engine.renderer.render_cmpl_async([prompt], skip_mm_cache=True)
    except Exception as error:
        if not passed.mm_processor_kwargs and not isinstance(error, AssertionError | ValueError | RuntimeError):
            raise  # the model's own processor only fails like this for wrong arguments of a request
        raise InvalidParameter(f"vLLM cannot put the images into the prompt: {' '.join(str(error).split())}") from error
    return ImagePrompt(content["prompt_token_ids"], content)


def read_images(
    images: Sequence[Image], reader: ImageReader, max_pixels: int, cancellation: Cancellation
) -> list[MediaWithBytes[PIL.Image.Image]]:
    """Return what the reader would return for the images, without its decoding them in this process."""
    decoded = decode_images(images, ALLOWED_IMAGE_FORMATS, max_pixels, cancellation)
    return [_convert(given, pixels, reader) for given, pixels in zip(images, decoded, strict=True)]


def _convert(image: Image, decoded: PIL.Image.Image, reader: ImageReader) -> MediaWithBytes[PIL.Image.Image]:
    mode, background = reader.image_mode, reader.rgba_background_color
    if mode is None or mode == decoded.mode:
        return MediaWithBytes(decoded, image.data)
    try:
        converted = convert_image_mode(decoded, mode, background)
    except ValueError as error:
        raise unreadable(image, error) from None
    # vLLM's key of the image in its caches
    return MediaWithBytes(converted, image.data, {"image_mode": mode, "rgba_background_color": background})


def _reader(engine: AsyncLLM, passed: VllmFields) -> ImageReader:
    """Return a reader of images by the request's and then the engine's `media_io_kwargs`."""
    config = engine.model_config.multimodal_config
    asked = (passed.media_io_kwargs or {}).get(IMAGE)
    mode = (asked or {}).get("image_mode")
    if mode is not None and mode not in MODES:
        raise InvalidParameter(f"`media_io_kwargs.image.image_mode` must be null or one of {', '.join(MODES)}")
    defaults = None if config is None else config.media_io_kwargs.get(IMAGE)
    try:
        return ImageReader(**ImageReader.merge_kwargs(defaults, asked))
    except (TypeError, ValueError) as error:
        raise InvalidParameter(f"`media_io_kwargs.image` cannot be used: {error}") from None
