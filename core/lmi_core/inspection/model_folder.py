"""Faults in the files of a Hugging Face model, found without loading the weights."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from lmi_core.errors import ConfigurationError
from lmi_core.errors.fault import Fault, unreadable
from lmi_core.inspection.chat_template_check import wrong_template
from lmi_core.inspection.checkpoint import Checkpoint
from lmi_core.inspection.layers import outside_layers
from lmi_core.texts.huggingface_tokenizer import HuggingFaceTokenizer
from lmi_core.texts.json_files import read_json

CONFIG = "config.json"
GENERATION_CONFIG = "generation_config.json"
JSON_FILES = (CONFIG, GENERATION_CONFIG, "tokenizer_config.json", "tokenizer.json")
EMBEDDINGS = ("embed_tokens.weight", "wte.weight", "word_embeddings.weight", "embed_in.weight", "tok_embeddings.weight")


def inspect_folder(folder: Path, checkpoint: Checkpoint, trust_remote_code: bool = False) -> list[str]:
    """Return the faults of a model's files, for any engine."""
    faults = wrong_files(folder, checkpoint)
    if not has_wrong_json(folder):
        faults += inspect_tokenizer(folder, checkpoint, trust_remote_code)
    return list(dict.fromkeys(faults))


def wrong_files(folder: Path, checkpoint: Checkpoint) -> list[str]:
    """Return the faults of single files: unreadable, truncated, or of another format."""
    return list(
        dict.fromkeys([*_unreadable_files(folder), *_wrong_json(folder), *outside_layers(folder), *checkpoint.faults])
    )


def has_wrong_json(folder: Path) -> bool:
    """Return whether a library that reads a model's JSON files would report the same faults as `wrong_files`."""
    return any(True for _ in _wrong_json(folder))


def _unreadable_files(folder: Path) -> Iterator[str]:
    for file in sorted(folder.iterdir()):
        if file.is_symlink() and not file.exists():
            yield f"{file}: a link to {file.readlink()}, which does not exist"
        elif file.is_file() and not os.access(file, os.R_OK):
            yield unreadable(PermissionError(), file)


def _wrong_json(folder: Path) -> Iterator[str]:
    for name in JSON_FILES:
        file = folder / name
        if not file.exists():
            continue
        if name in (CONFIG, GENERATION_CONFIG) and (absurd := [*absurd_sizes(file)]):
            yield from absurd
            continue
        try:
            content = read_json(file)
        except Fault as fault:
            yield str(fault)
            continue
        if name == CONFIG and not isinstance(content.get("model_type"), str):
            yield f"{file}: `model_type` must name the model's architecture, such as llama"
        if name in (CONFIG, GENERATION_CONFIG) and not _is_token_ids(content.get("eos_token_id")):
            yield f"{file}: `eos_token_id` must be a token id or several. Given: {content['eos_token_id']}"


def _is_token_ids(value: object) -> bool:
    return value is None or isinstance(value, int) or (isinstance(value, list) and all(type(id) is int for id in value))


def inspect_tokenizer(folder: Path, checkpoint: Checkpoint, trust_remote_code: bool = False) -> Iterator[str]:
    """Yield the faults of a model's tokenizer and chat template."""
    try:
        tokenizer = HuggingFaceTokenizer.load(str(folder), trust_remote_code=trust_remote_code)
    except ConfigurationError as error:
        yield error.message
        return
    yield from wrong_vocabulary(folder, tokenizer, checkpoint)
    if (template := tokenizer.chat_template(with_tools=False)) is not None:
        yield from wrong_template(f"{folder}: the chat template", template, tokenizer)


def wrong_vocabulary(folder: Path, tokenizer: HuggingFaceTokenizer, checkpoint: Checkpoint) -> Iterator[str]:
    """Yield the fault of a tokenizer that has tokens without embeddings, except for added tokens."""
    rows = {
        weight.shape[0] for name, weight in checkpoint.weights.items() if name.endswith(EMBEDDINGS) and weight.shape
    }
    if len(rows) != 1:  # an encoder beside the decoder, or weights with other names
        return
    beyond = tokens_beyond(tokenizer, rows.pop())
    if beyond is not None and not beyond.only_added:
        yield f"{folder}: the tokenizer is not this model's: {beyond.described}"


class TokensBeyond(NamedTuple):
    """The tokens without embeddings as text, and whether all of them were added to the vocabulary.

    Added tokens are common: many tokenizers have an unused padding token.
    """

    described: str
    only_added: bool


def tokens_beyond(tokenizer: HuggingFaceTokenizer, rows: int) -> TokensBeyond | None:
    """Return the tokens beyond a model's `rows` of embeddings, or None."""
    vocabulary: dict[str, int] = tokenizer.pretrained.get_vocab()
    beyond = {token_id: token for token, token_id in vocabulary.items() if token_id >= rows}
    if not beyond:
        return None
    first = min(beyond)
    described = (
        f"no embedding for {len(beyond)} of its tokens, from {first} ({beyond[first]!r}) on: the model has {rows}"
    )
    return TokensBeyond(described, beyond.keys() <= tokenizer.pretrained.added_tokens_decoder.keys())


MAX_BYTES = 16 * 2**20  # of the file; real ones have a few thousand
MAX_LAYERS = 2000  # models with more than a hundred are rare
LAYERS = frozenset({"decoder_layers", "encoder_layers", "n_layer", "n_layers", "num_hidden_layers", "num_layers"})


def absurd_sizes(file: Path) -> Iterator[str]:
    """Yield the absurd sizes in a config.json; nothing if it cannot be read, which other checks report."""
    try:
        size = file.stat().st_size
        if size > MAX_BYTES:
            yield f"{file}: the file has {size} bytes; at most {MAX_BYTES} are read"
            return
        config = read_json(file)
    except (OSError, Fault):
        return
    for name, value in _numbers(config):
        if name in LAYERS and value > MAX_LAYERS:
            yield f"{file}: `{name}` must be at most {MAX_LAYERS}. Given: {value}"


def _numbers(config: dict[str, Any]) -> Iterator[tuple[str, int]]:
    """Yield the integers of a configuration and of those of its parts, such as `text_config`."""
    for name, value in config.items():
        if isinstance(value, int):
            yield name, value
        elif isinstance(value, dict):
            yield from _numbers(value)
