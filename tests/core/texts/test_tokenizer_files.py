"""The tokenizers that are loaded without AutoTokenizer are those that it would load."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from lmi_core.texts.tokenizer_files import BELIEVED, GENERIC, is_generic

HELLO = Path(__file__).parents[3] / "examples" / "hello"


def folder(path: Path, model_type: str = "llama", tokenizer_class: str = "TokenizersBackend", **others: Any) -> Path:
    (path / "config.json").write_text(json.dumps({"model_type": model_type}))
    (path / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": tokenizer_class, **others}))
    (path / "tokenizer.json").write_text((HELLO / "tokenizer.json").read_text())
    return path


@pytest.mark.torch
@pytest.mark.parametrize("tokenizer_class", sorted(GENERIC))
@pytest.mark.parametrize("model_type", sorted(BELIEVED))
def test_auto_tokenizer_takes_the_same_class(tmp_path: Path, model_type: str, tokenizer_class: str) -> None:
    from transformers import AutoTokenizer, PreTrainedTokenizerFast

    model = folder(tmp_path, model_type, tokenizer_class)
    assert is_generic(model)
    auto, own = (loader.from_pretrained(str(model)) for loader in (AutoTokenizer, PreTrainedTokenizerFast))
    assert type(auto) is type(own)
    assert auto.backend_tokenizer.to_str() == own.backend_tokenizer.to_str()
    assert auto.special_tokens_map == own.special_tokens_map


@pytest.mark.parametrize(
    "others",
    [
        {"model_type": "deepseek_v3"},
        {"model_type": "mistral"},
        {"tokenizer_class": "LlamaTokenizer"},
        {"auto_map": {"AutoTokenizer": ["own.Tokenizer", None]}},
    ],
)
def test_others_are_left_to_auto_tokenizer(tmp_path: Path, others: dict[str, Any]) -> None:
    assert not is_generic(folder(tmp_path, **others))


def test_files_that_are_missing_or_broken(tmp_path: Path) -> None:
    assert not is_generic(tmp_path)
    folder(tmp_path)
    (tmp_path / "tokenizer.json").unlink()
    assert not is_generic(tmp_path)
    folder(tmp_path)
    (tmp_path / "config.json").write_text("[1")
    assert not is_generic(tmp_path)
    (tmp_path / "config.json").write_text("[1]")
    assert not is_generic(tmp_path)


def test_no_pytorch_is_imported_for_a_generic_tokenizer() -> None:
    script = (
        "import sys; from lmi_core.texts.huggingface_tokenizer import HuggingFaceTokenizer\n"
        f"tokenizer = HuggingFaceTokenizer.load({str(HELLO)!r})\n"
        "assert tokenizer.decode(tokenizer.encode('Hello')) == 'Hello'\n"
        "print('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120)
    assert done.stdout == "False\n", done.stderr
