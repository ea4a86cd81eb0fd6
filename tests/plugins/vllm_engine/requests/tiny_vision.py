"""A vision model with random weights, and images for it."""

from base64 import b64encode
from io import BytesIO
from pathlib import Path
from typing import Any

import torch
from PIL import Image
from transformers import AutoTokenizer, Idefics3Config, Idefics3ForConditionalGeneration, Idefics3Processor, LlamaConfig
from transformers.models.idefics3.configuration_idefics3 import Idefics3VisionConfig
from transformers.models.idefics3.image_processing_pil_idefics3 import Idefics3ImageProcessorPil

from tests.plugins.vllm_server import HELLO, ONE_PROCESS, PROPERTIES

SIDE = 32  # pixels
TOKENS_OF_IMAGE = 7  # four for the image, three around them
IMAGE_TOKENS = ["<image>", "<fake_token_around_image>", "<end_of_utterance>", "<global-img>"]
TEMPLATE = """\
{%- for message in messages -%}<|{{ message.role }}|>
{%- for part in message.content %}{% if part.type == 'image' %}<image>{% else %}{{ part.text }}{% endif %}{% endfor -%}
<|end|>{%- endfor -%}<|assistant|>"""


def save_vision_model(directory: Path) -> None:
    tokenizer = AutoTokenizer.from_pretrained(HELLO)
    tokenizer.add_tokens(IMAGE_TOKENS, special_tokens=True)
    size = {"longest_edge": SIDE}
    images = Idefics3ImageProcessorPil(size=size, max_image_size=size, do_image_splitting=False)
    Idefics3Processor(images, tokenizer, image_seq_len=4, chat_template=TEMPLATE).save_pretrained(directory)
    layers: dict[str, Any] = {
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
    }
    image_id = tokenizer.convert_tokens_to_ids("<image>")
    assert isinstance(image_id, int)
    config = Idefics3Config(
        vision_config=Idefics3VisionConfig(**layers, image_size=SIDE, patch_size=8),
        text_config=LlamaConfig(
            **layers, vocab_size=1088, max_position_embeddings=1024, eos_token_id=1, pad_token_id=0, bos_token_id=None
        ),
        image_token_id=image_id,
        pad_token_id=0,
    )
    torch.manual_seed(0)
    create: Any = Idefics3ForConditionalGeneration  # untyped
    model = create(config)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1:
                parameter.normal_(0, 0.2)  # otherwise images would hardly change the answer
    model.save_pretrained(directory)
    (directory / "serving.properties").write_text(
        f'{PROPERTIES}{ONE_PROCESS}option.limit_mm_per_prompt={{"image": 3}}\noption.trust_request_mm_kwargs=true\n'
    )


def png(color: str, side: int = SIDE) -> bytes:
    file = BytesIO()
    Image.new("RGB", (side, side), color).save(file, "PNG")
    return file.getvalue()


def data_url(data: bytes) -> str:
    return "data:image/png;base64," + b64encode(data).decode()


def image_part(url: str) -> dict[str, Any]:
    return {"type": "image_url", "image_url": {"url": url}}
