"""A tokenizer's configuration as JSON, as a model's `tokenizer_config.json` has it."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

# Where the tokenizer's files lie is the host's own business.
PATHS = frozenset({"merges_file", "name_or_path", "special_tokens_map_file", "tokenizer_file", "vocab_file"})


def tokenizer_configuration(pretrained: "PreTrainedTokenizerBase") -> dict[str, Any]:
    """Return the arguments that the tokenizer was created with, without paths, and the name of its class."""
    given = {name: value for name, value in pretrained.init_kwargs.items() if name not in PATHS}
    written: dict[str, Any] = _as_json(given)
    return written | {"tokenizer_class": type(pretrained).__name__}


def _as_json(value: Any) -> Any:
    """Return what JSON can hold of a value: a special token becomes its text."""
    if isinstance(value, dict):
        return {str(key): _as_json(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_as_json(each) for each in value]
    if value is None or isinstance(value, bool | int | float | str):
        return value
    return str(getattr(value, "content", value))
