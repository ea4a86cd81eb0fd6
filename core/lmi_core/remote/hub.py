"""Snapshots of models on the Hugging Face hub, in the hub's own cache, which the download process fills."""

import glob
import json
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from lmi_core.configuration.location import RemoteModel
from lmi_core.errors import ConfigurationError
from lmi_core.remote.copies import CopiedFile, file_size
from lmi_core.remote.errors import Unreachable, first_line
from lmi_core.remote.report import REPORT_SECONDS, Report
from lmi_core.remote.selection import gguf_file, useless, weights
from lmi_core.remote.space import check_space

if TYPE_CHECKING:
    from huggingface_hub.hf_api import ModelInfo

SECONDS = 5.0  # seconds to wait for the first response
THREADS = 8
SPACE_VARIABLE = "HF_HOME"
WEIGHTS = ("*.safetensors", "*.bin", "*.pt")
OF_TOKENIZERS = ("tokenizer_config.json", "tokenizer.json", "config.json")
INDEXES = ("*.safetensors.index.json", "*.bin.index.json")
LOG_IN = "set HF_TOKEN to a token with access to it"


def repository_folder(model: RemoteModel) -> Path:
    from huggingface_hub.constants import HF_HUB_CACHE

    return Path(HF_HUB_CACHE) / f"models--{model.repository.replace('/', '--')}"


def bytes_there(repository: Path, snapshot: Path, files: Sequence[CopiedFile]) -> int:
    """Return the number of the files' bytes in the cache, which names contents by identity, and of their unfinished
    downloads.
    """
    unfinished: dict[str, int] = {}
    for path in (repository / "blobs").glob("*.incomplete"):
        name = path.name.partition(".")[0]
        unfinished[name] = max(unfinished.get(name, 0), file_size(path) or 0)
    blobs = repository / "blobs"
    whole = {each.path for each in files if (snapshot / each.path).exists() or (blobs / each.identity).is_file()}
    return sum(each.size if each.path in whole else min(unfinished.get(each.identity, 0), each.size) for each in files)


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


def copy_from_hub(model: RemoteModel, report: Report) -> Path:
    """Download a snapshot, and return its folder; of a model in GGUF, download and return that file.

    Raise ConfigurationError if this fails, or OSError from the disk.
    """
    from huggingface_hub.constants import HF_HUB_OFFLINE

    if HF_HUB_OFFLINE:
        return _require_cached(model, ConfigurationError("HF_HUB_OFFLINE is set"))
    try:
        info = _fetch_info(model)
    except Unreachable as error:
        folder = _require_cached(model, _kind_of(error.__cause__)(error.message))
        report.note(f"{error.message}. The snapshot downloaded earlier is served: {folder}")
        return folder
    return _download(model, info, report)


def _require_cached(model: RemoteModel, why: ConfigurationError) -> Path:
    """Return the folder of a complete snapshot. Raise an error of the same class as `why` if there is none."""
    folder = cached_snapshot(model)
    if folder is None:
        raise type(why)(f"{model} is not a folder, the hub's cache has no complete copy of it, and {why.message}")
    return folder


def _fetch_info(model: RemoteModel) -> "ModelInfo":
    from huggingface_hub import HfApi, constants, errors

    try:
        return HfApi().model_info(model.repository, revision=model.revision, files_metadata=True, timeout=SECONDS)
    except errors.GatedRepoError as error:
        raise ConfigurationError(
            f"{model}: access to this model is restricted: request it on the hub, and {LOG_IN}"
        ) from error
    except errors.RevisionNotFoundError as error:
        raise ConfigurationError(f"{model}: the hub has the model, but not this revision") from error
    except errors.RepositoryNotFoundError as error:
        raise ConfigurationError(
            f"{model} is not a folder, and the hub has no such public model: check the name, or {LOG_IN}"
        ) from error
    except errors.HFValidationError as error:
        raise ConfigurationError(f"{model} is neither a folder nor a valid model id of the hub") from error
    except errors.HfHubHTTPError as error:
        raise Unreachable(f"the hub at {constants.ENDPOINT} answered with {_status(error) or 'an error'}") from error
    except Exception as error:  # the HTTP library, and thus its exceptions, depend on the version of huggingface_hub
        raise Unreachable(f"the hub at {constants.ENDPOINT} cannot be reached ({first_line(error)})") from error


def _status(error: BaseException | None) -> int:
    """Return the status of an answer; 0 without one."""
    return int(getattr(getattr(error, "response", None), "status_code", 0))


def _kind_of(error: BaseException | None) -> type[ConfigurationError]:
    """Return Unreachable, unless the error will be the same at the next start, as for a wrong token."""
    status = _status(error)
    return ConfigurationError if 400 <= status < 500 and status not in (408, 429) else Unreachable


def _download(model: RemoteModel, info: "ModelInfo", report: Report) -> Path:
    files = [
        CopiedFile(each.rfilename, each.size or 0, (each.lfs.sha256 if each.lfs else each.blob_id) or "")
        for each in info.siblings or []
    ]
    paths = [each.path for each in files]
    file = None if model.only_tokenizer else gguf_file(model, paths)
    skipped = set() if model.everything else weights(paths) if model.only_tokenizer else useless(paths)
    if file is not None:
        skipped = set(paths) - {file}
    wanted = [each for each in files if each.path not in skipped]
    repository = repository_folder(model)
    snapshot = repository / "snapshots" / str(info.sha)
    total = sum(each.size for each in wanted)
    done = bytes_there(repository, snapshot, wanted)
    if done < total or not all((snapshot / each.path).exists() for each in wanted):
        repository.mkdir(parents=True, exist_ok=True)
        check_space(model.source, repository, total - done, SPACE_VARIABLE)
        report.begin(total, done, sum(each.size for each in files if each.path in skipped), snapshot)
    with ThreadPoolExecutor(1) as thread:  # its progress is measured on disk, because it reports only to a terminal
        fetching = thread.submit(_fetch, model, str(info.sha), [each.path for each in wanted])
        while not wait([fetching], REPORT_SECONDS).done:
            report.progress(bytes_there(repository, snapshot, wanted))
        return fetching.result() / (file or "")


def _fetch(model: RemoteModel, commit: str, paths: list[str]) -> Path:
    """Download files, and return the snapshot's folder.

    Raise ConfigurationError, Unreachable, or OSError from the disk.
    """
    from huggingface_hub import snapshot_download

    patterns = [glob.escape(path) for path in paths]
    try:
        snapshot = Path(
            snapshot_download(model.repository, revision=commit, allow_patterns=patterns, max_workers=THREADS)
        )
        _remember(snapshot, model.revision or "main")
    except Exception as error:
        if isinstance(error, OSError) and error.errno is not None:  # a full disk
            raise
        raise _kind_of(error)(f"{model} cannot be downloaded from the hub: {first_line(error)}") from error
    return snapshot


def _remember(snapshot: Path, revision: str) -> None:
    """Record a branch's or tag's commit in the cache, as huggingface_hub does for a revision by name."""
    if revision == snapshot.name:
        return
    reference = snapshot.parents[1] / "refs" / revision
    reference.parent.mkdir(parents=True, exist_ok=True)
    written = reference.with_name(f".{reference.name}.lmi")
    written.write_text(snapshot.name)
    written.replace(reference)
