"""The location of a model's weights."""

import re
from pathlib import Path

from lmi_core.configuration.location import GGUF, S3Location, is_archive, is_hub_id, is_s3, is_web
from lmi_core.configuration.properties import ModelProperties
from lmi_core.errors import ConfigurationError
from lmi_core.errors.did_you_mean import stray_text_hint

_IN_NO_ID = re.compile(r"[{}<>$%\"'`#\s]")  # characters of placeholders, quotes and comments, which no id contains


def model_source(directory: Path, properties: ModelProperties) -> str:
    """Return a folder's path, the URL or path of a remote model or archive, or a hub id.

    Without `option.model_id`, the model directory itself contains the weights, or one GGUF file. Raise
    ConfigurationError if it does not.
    """
    model_id = properties.model_id
    if model_id is None:
        if (directory / "config.json").is_file():
            return str(directory)
        files = [*directory.resolve().glob(f"*{GGUF}")]
        if len(files) != 1:
            raise ConfigurationError(
                f"{directory} contains no config.json: set option.model_id, or put the model's files there"
            )
        return str(files[0])
    if (copied := copied_source(directory, model_id)) is not None:
        return copied
    if "://" in model_id:
        raise ConfigurationError(
            f"option.model_id={model_id} is not a supported URL: give s3://bucket/folder/, the URL of an archive, the "
            "path of a folder, or a hub id"
        )
    for folder in (directory / model_id, Path(model_id)):
        if (folder / "config.json").is_file():
            return str(folder)
    if (directory / model_id).exists():
        raise ConfigurationError(f"option.model_id={model_id}: there is no config.json in that folder")
    if model_id.startswith((".", "/", "~")):
        raise ConfigurationError(f"option.model_id={model_id}: there is no such folder")
    if _IN_NO_ID.search(model_id):
        hint = stray_text_hint(model_id).removesuffix(".") or " Is it a placeholder that was not replaced?"
        raise ConfigurationError(f"option.model_id={model_id} is neither a folder nor the id of a model.{hint}")
    return model_id


def copied_source(directory: Path, source: str) -> str | None:
    """Return the URL, or the absolute path of an archive, of a source that must be copied; None for others.

    Raise ConfigurationError if the URL is invalid.
    """
    if is_s3(source):
        S3Location.parse(source)
    if is_s3(source) or is_web(source):
        return source
    return next((str(path.resolve()) for path in (directory / source, Path(source)) if is_archive(path)), None)


def is_on_hub(source: str) -> bool:
    """Return whether a model's source must be a hub id, because no such folder or file exists."""
    return is_hub_id(source) and not Path(source).exists()


def weights_folder(directory: Path, properties: ModelProperties) -> Path | None:
    """Return the folder on this host that contains a model's weights; None if there is none yet."""
    try:
        folder = Path(model_source(directory, properties))
    except ConfigurationError:  # a backend without weights
        return None
    return folder if folder.is_dir() else None
