"""Tokenizers that make gigabytes of a few characters."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from lmi_core.errors import ConfigurationError
from lmi_core.texts.huggingface_tokenizer import HuggingFaceTokenizer

HELLO = Path(__file__).parents[3] / "examples" / "hello"
TEN = {"type": "Replace", "pattern": {"String": "a"}, "content": "a" * 10}
SPACES = {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": " "}
PREPEND = {"type": "Prepend", "prepend": "_"}
TEXT = {"Sequence": {"id": "A", "type_id": 0}}
END = {"id": "END", "ids": [0] * 2000, "tokens": ["a"] * 2000}


def template(single: list[object]) -> dict[str, Any]:
    return {"type": "TemplateProcessing", "single": single, "pair": [], "special_tokens": {"END": END}}


def load(directory: Path, **parts: object) -> HuggingFaceTokenizer:
    folder = Path(shutil.copytree(HELLO, directory / "hello", ignore=shutil.ignore_patterns("*.py", "*.md")))
    tokenizer = json.loads((folder / "tokenizer.json").read_text())
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer | parts))
    return HuggingFaceTokenizer.load(str(folder))


@pytest.mark.parametrize(
    "normalizer",
    [
        {"type": "Sequence", "normalizers": [PREPEND, SPACES, {"type": "NFKC"}, TEN]},
        {"type": "Prepend", "prepend": "a" * 100},
    ],
)
def test_ordinary_tokenizers(tmp_path: Path, normalizer: dict[str, Any]) -> None:
    assert load(tmp_path, normalizer=normalizer).encode("aa")


@pytest.mark.parametrize(
    ("part", "content", "expected"),
    [
        ("normalizer", {"type": "Sequence", "normalizers": [TEN] * 9}, "its normalizer makes texts more than 64 times"),
        (
            "normalizer",
            {"type": "Sequence", "normalizers": [{"type": "Sequence", "normalizers": [TEN, TEN]}]},
            "its normalizer makes texts more than 64 times",
        ),
        ("normalizer", {"type": "Prepend", "prepend": "a" * 10**6}, "its normalizer makes texts more than 64 times"),
        (
            "normalizer",
            {"type": "Replace", "pattern": {"Regex": "."}, "content": "a" * 1000},
            "its normalizer makes texts more than 64 times",
        ),
        ("decoder", {"type": "Sequence", "decoders": [TEN] * 9}, "its decoder makes texts more than 64 times"),
        ("post_processor", template([TEXT] * 100), "its post_processor repeats each text more than 64 times"),
        (
            "post_processor",
            template([TEXT, {"SpecialToken": {"id": "END", "type_id": 0}}]),
            "its post_processor adds more than 1000 tokens to each text",
        ),
        (
            "post_processor",
            {"type": "Sequence", "processors": [template([TEXT] * 2000)]},
            "its post_processor adds more than 1000 tokens to each text",
        ),
    ],
)
def test_absurd_ones(tmp_path: Path, part: str, content: dict[str, Any], expected: str) -> None:
    with pytest.raises(ConfigurationError, match=expected):
        load(tmp_path, **{part: content})
