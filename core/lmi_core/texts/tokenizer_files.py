"""Explanations of tokenizer files that cannot be loaded."""

from collections.abc import Iterator
from pathlib import Path

from lmi_core.errors.fault import Fault, unreadable
from lmi_core.texts.json_files import read_json
from lmi_core.texts.reason import reason

SETTINGS = ("config.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json")
VOCABULARY = ("tokenizer.json", "*vocab*", "*.model", "*.tiktoken", "tekken.json", "merges.txt", "tokenization_*.py")
TEMPLATE = "chat_template.jinja"


def has_tokenizer(folder: Path) -> bool:
    """Return whether the folder contains files of a tokenizer."""
    return any(next(folder.glob(pattern), None) for pattern in (*VOCABULARY, "tokenizer_config.json"))


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
