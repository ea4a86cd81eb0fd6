"""A tokenizer's configuration as JSON."""

import json
from pathlib import Path

import orjson
import pytest

from lmi_core.texts.huggingface_tokenizer import HuggingFaceTokenizer

HELLO = Path(__file__).parents[3] / "examples" / "hello"


@pytest.mark.torch
def test_what_the_file_says() -> None:
    found = HuggingFaceTokenizer.load(str(HELLO)).configuration()
    written = json.loads((HELLO / "tokenizer_config.json").read_text(encoding="utf-8"))
    assert {name: found[name] for name in written} == written
    assert found["added_tokens_decoder"]["1"] == "<|end|>"
    assert str(HELLO) not in orjson.dumps(found).decode(), "where the files lie is not told"
