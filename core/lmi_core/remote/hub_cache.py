"""The contents of the hub's cache on this host."""

import json
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from lmi_core.configuration.location import RemoteModel
from lmi_core.errors import ConfigurationError
from lmi_core.remote.copies import file_size
from lmi_core.remote.selection import gguf_file

WEIGHTS = ("*.safetensors", "*.bin", "*.pt")
OF_TOKENIZERS = ("tokenizer_config.json", "tokenizer.json", "config.json")
INDEXES = ("*.safetensors.index.json", "*.bin.index.json")


class RepositoryFile(NamedTuple):
    """A file of a repository; `blob` is the name of its content in the cache."""

    path: str
    size: int
    blob: str


def repository_folder(model: RemoteModel) -> Path:
    from huggingface_hub.constants import HF_HUB_CACHE

    return Path(HF_HUB_CACHE) / f"models--{model.repository.replace('/', '--')}"


def bytes_there(repository: Path, snapshot: Path, files: Sequence[RepositoryFile]) -> int:
    """Return the number of the files' bytes in the cache, including unfinished downloads."""
    unfinished: dict[str, int] = {}
    for path in (repository / "blobs").glob("*.incomplete"):
        name = path.name.partition(".")[0]
        unfinished[name] = max(unfinished.get(name, 0), file_size(path) or 0)
    blobs = repository / "blobs"
    whole = {each.path for each in files if (snapshot / each.path).exists() or (blobs / each.blob).is_file()}
    return sum(each.size if each.path in whole else min(unfinished.get(each.blob, 0), each.size) for each in files)


def cached_snapshot(model: RemoteModel) -> Path | None:
    """Return the folder of a complete snapshot in the cache, or the GGUF file in it; None if there is neither."""
    repository, revision = repository_folder(model), model.revision or "main"
    reference = repository / "refs" / revision
    folder = repository / "snapshots" / (reference.read_text() if reference.is_file() else revision)
    if model.only_tokenizer:
        return folder if any((folder / name).exists() for name in OF_TOKENIZERS) else None
    paths = [str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()]
    with suppress(ConfigurationError):  # the requested one is missing
        if (file := gguf_file(model, paths)) is not None:
            return folder / file
        return folder if (folder / "config.json").exists() and has_weights(folder) else None
    return None


def has_weights(folder: Path) -> bool:
    """Return whether the folder contains every file of its weights' index or, without an index, any weights."""
    indexes = [path for pattern in INDEXES for path in folder.glob(pattern)]
    if indexes:
        return any(all((folder / name).exists() for name in _files_in_index(index)) for index in indexes)
    return any(True for pattern in WEIGHTS for _ in folder.glob(pattern))


def _files_in_index(index: Path) -> set[str]:
    try:
        return set(json.loads(index.read_text())["weight_map"].values())
    except (OSError, ValueError, KeyError, AttributeError):
        return set()
