"""Images in prompts, which vLLM's processor of the model reads and puts into their places."""

import asyncio
from collections.abc import Sequence
from typing import Any

from PIL import UnidentifiedImageError  # which vLLM requires

from lmi_core.chats.images import Image, ImagePrompt
from lmi_core.errors import InvalidParameter
from lmi_plugins.vllm_engine.library import MOST_PIXELS, AsyncLLM, ImageReader, get_model_cls

IMAGE = "image"  # vLLM's name of this modality


class VllmImages:
    """How many images the model takes, and how a prompt names them; the same when the engine is started again."""

    def __init__(self, engine: AsyncLLM) -> None:
        config = engine.model_config
        self._model = get_model_cls(config) if config.supports_multimodal_inputs else None
        self.most = 0
        if self._model is not None:
            self.most = int(engine.renderer.get_mm_processor().info.allowed_mm_limits.get(IMAGE, 0))

    def placeholder(self, number: int) -> str | None:
        """Return the text that stands for an image in a prompt, None where the model takes none."""
        return None if self._model is None else self._model.get_placeholder_str(IMAGE, number)


async def place_images(engine: AsyncLLM, prompt_ids: list[int], images: Sequence[Image]) -> ImagePrompt:
    """Return the prompt with the images in their places. Raises InvalidParameter."""
    decoded = await asyncio.to_thread(_decode, images)
    prompt = {"prompt_token_ids": prompt_ids, "multi_modal_data": {IMAGE: decoded}}
    try:
        # Its other cache counts on the engine seeing every prompt in turn, and one may be refused or dropped from here.
        (content,) = await engine.renderer.render_cmpl_async([prompt], skip_mm_cache=True)
    except (AssertionError, ValueError, RuntimeError) as error:  # of the model's own processor, too
        raise InvalidParameter(f"vLLM cannot put the images into the prompt: {' '.join(str(error).split())}") from error
    return ImagePrompt(content["prompt_token_ids"], content)


def _decode(images: Sequence[Image]) -> list[Any]:
    pixels = 0
    decoded = []
    for image in images:
        decoded.append(_decode_one(image))
        width, height = decoded[-1].media.size
        pixels += width * height
        if pixels > MOST_PIXELS:
            raise InvalidParameter(f"`{image.place}` is too large: images may have {MOST_PIXELS} pixels together")
    return decoded


def _decode_one(image: Image) -> Any:
    try:
        return ImageReader().load_bytes(image.data)
    except Exception as error:  # of whatever class the reader of the format raises
        raise InvalidParameter(f"`{image.place}` is no image that can be read: {_reason(error)}") from error


def _reason(error: Exception) -> str:
    """Return why an image cannot be read; Pillow's own words on an unknown format are the address of a buffer."""
    return "its format is unknown" if isinstance(error.__cause__, UnidentifiedImageError) else str(error)
