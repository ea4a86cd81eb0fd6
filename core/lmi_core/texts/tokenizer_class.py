"""The class of a model's tokenizer, found without importing AutoTokenizer."""

from pathlib import Path
from typing import Any

from lmi_core.errors.fault import Fault
from lmi_core.texts.json_files import read_json

GENERIC = frozenset({"TokenizersBackend", "PreTrainedTokenizerFast"})  # tokenizer.json contains all of their behavior
# Models for which AutoTokenizer uses the generic class that tokenizer_config.json names; a test checks this.
BELIEVED = frozenset(
    {"gemma2", "gemma3_text", "gpt2", "gpt_neox", "granite", "llama", "mixtral", "olmo2", "phi3", "qwen3"}
)


def is_generic(folder: Path) -> bool:
    """Return whether AutoTokenizer would load this folder's tokenizer by the generic class; False if unsure.

    Importing AutoTokenizer imports PyTorch, which the server itself does not need.
    """
    tokenizer, model = _read(folder / "tokenizer_config.json"), _read(folder / "config.json")
    return (
        tokenizer.get("tokenizer_class") in GENERIC
        and "auto_map" not in tokenizer
        and model.get("model_type") in BELIEVED
        and "auto_map" not in model
        and (folder / "tokenizer.json").is_file()
    )


def _read(file: Path) -> dict[str, Any]:
    try:
        return read_json(file)
    except Fault:
        return {}
