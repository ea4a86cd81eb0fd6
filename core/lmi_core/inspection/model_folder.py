"""Faults that the files of a Hugging Face model show without its weights being loaded."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from jinja2 import TemplateSyntaxError

from lmi_core.errors import ConfigurationError
from lmi_core.inspection.checkpoint import Checkpoint
from lmi_core.inspection.fault import Fault
from lmi_core.inspection.json_files import read_json
from lmi_core.inspection.vocabulary import tokens_beyond
from lmi_core.texts.huggingface_tokenizer import HuggingFaceTokenizer

CONFIG = "config.json"
JSON_FILES = (CONFIG, "generation_config.json", "tokenizer_config.json", "tokenizer.json")
MESSAGES = [{"role": "user", "content": "Hello"}]
EMBEDDINGS = ("embed_tokens.weight", "wte.weight", "word_embeddings.weight", "embed_in.weight", "tok_embeddings.weight")


def inspect_folder(folder: Path, checkpoint: Checkpoint, trust_remote_code: bool = False) -> list[str]:
    """Return what is wrong with a model's files, whatever engine is to load them."""
    faults = [*_unreadable_files(folder), *_wrong_json(folder)]
    if faults:  # the libraries that read these files would tell the same again, in other words
        return [*faults, *checkpoint.faults]
    return [*checkpoint.faults, *_wrong_tokenizer(folder, checkpoint, trust_remote_code)]


def _unreadable_files(folder: Path) -> Iterator[str]:
    for file in sorted(folder.iterdir()):
        if file.is_symlink() and not file.exists():
            yield f"{file}: a link to {file.readlink()}, which does not exist"
        elif file.is_file() and not os.access(file, os.R_OK):
            yield f"{file}: no permission to read it"


def _wrong_json(folder: Path) -> Iterator[str]:
    for name in JSON_FILES:
        file = folder / name
        if not file.exists() or not os.access(file, os.R_OK):
            continue
        try:
            content = read_json(file)
        except Fault as fault:
            yield str(fault)
            continue
        if name == CONFIG and not isinstance(content.get("model_type"), str):
            yield f"{file}: `model_type` must name the model's architecture, such as llama"


def _wrong_tokenizer(folder: Path, checkpoint: Checkpoint, trust_remote_code: bool) -> Iterator[str]:
    try:
        tokenizer = HuggingFaceTokenizer.load(str(folder), trust_remote_code=trust_remote_code)
    except ConfigurationError as error:
        yield error.message
        return
    yield from _wrong_vocabulary(folder, tokenizer, checkpoint)
    if (template := tokenizer.chat_template(with_tools=False)) is not None:
        yield from wrong_template(f"{folder}: the chat template", template, tokenizer)


def _wrong_vocabulary(folder: Path, tokenizer: HuggingFaceTokenizer, checkpoint: Checkpoint) -> Iterator[str]:
    """Yield the fault of a tokenizer with tokens, other than added ones, for which there are no embeddings."""
    rows = {
        weight.shape[0] for name, weight in checkpoint.weights.items() if name.endswith(EMBEDDINGS) and weight.shape
    }
    if len(rows) != 1:  # an encoder beside the decoder, or weights of another naming
        return
    beyond = tokens_beyond(tokenizer, rows.pop())
    if beyond is not None and not beyond.only_added:
        yield f"{folder}: the tokenizer is not this model's: {beyond.described}"


def wrong_template(what: str, template: str, tokenizer: HuggingFaceTokenizer) -> Iterator[str]:
    """Yield the fault of a chat template that is not Jinja; one that refuses a chat is right."""
    pretrained: Any = tokenizer.pretrained
    try:
        pretrained.apply_chat_template(MESSAGES, chat_template=template, tokenize=False)
    except TemplateSyntaxError as error:
        yield f"{what} is not Jinja: line {error.lineno}: {error.message}"
    except Exception:  # it may ask for a system message, or for names that requests bring
        return
