"""The files of a tokenizer: which class loads them, and explanations of those that cannot be loaded."""

from collections.abc import Iterator
from pathlib import Path

from lmi_core.errors.fault import Fault, unreadable
from lmi_core.texts.json_files import read_json
from lmi_core.texts.reason import reason

SETTINGS = ("config.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json")
VOCABULARY = ("tokenizer.json", "*vocab*", "*.model", "*.tiktoken", "tekken.json", "merges.txt", "tokenization_*.py")
TEMPLATE = "chat_template.jinja"
GENERIC = frozenset({"TokenizersBackend", "PreTrainedTokenizerFast"})  # tokenizer.json contains all of their behavior
# Models for which AutoTokenizer uses the generic class that tokenizer_config.json names; a test checks this.
BELIEVED = frozenset(
    {"gemma2", "gemma3_text", "gpt2", "gpt_neox", "granite", "llama", "mixtral", "olmo2", "phi3", "qwen3"}
)


def has_tokenizer(folder: Path) -> bool:
    """Return whether the folder contains files of a tokenizer."""
    return any(next(folder.glob(pattern), None) for pattern in (*VOCABULARY, "tokenizer_config.json"))


def is_generic(folder: Path) -> bool:
    """Return whether AutoTokenizer would load this folder's tokenizer by the generic class; False if unsure.

    Importing AutoTokenizer imports PyTorch, which the server itself does not need.
    """
    try:
        tokenizer, model = read_json(folder / "tokenizer_config.json"), read_json(folder / "config.json")
    except Fault:
        return False
    return (
        tokenizer.get("tokenizer_class") in GENERIC
        and "auto_map" not in tokenizer
        and model.get("model_type") in BELIEVED
        and "auto_map" not in model
        and (folder / "tokenizer.json").is_file()
    )


def why_no_tokenizer(source: str, error: Exception) -> str:
    """Return why a tokenizer could not be loaded: the faults of its files, or transformers' message."""
    folder = Path(source)
    if folder.is_dir():
        if found := [*_wrong(folder)]:
            return "; ".join(found)
        if not any(next(folder.glob(pattern), None) for pattern in VOCABULARY):
            return f"{source}: there is no tokenizer: neither tokenizer.json nor another vocabulary file"
    if type(error).__name__.startswith("StrictDataclass"):  # raised for contradictory values
        return f"{source}: config.json: {reason(error)}"
    return f"{source}: the tokenizer cannot be loaded: {reason(error)}"


def _wrong(folder: Path) -> Iterator[str]:
    for name in ("tokenizer.json", *SETTINGS):
        if (folder / name).exists():
            try:
                read_json(folder / name)
            except Fault as fault:
                yield str(fault)
    try:
        (folder / TEMPLATE).read_text(encoding="utf-8")
    except FileNotFoundError:
        return
    except OSError as error:
        yield unreadable(error, folder / TEMPLATE)
    except UnicodeDecodeError as error:
        yield f"{folder / TEMPLATE}: the file must be UTF-8 text: {error}"
