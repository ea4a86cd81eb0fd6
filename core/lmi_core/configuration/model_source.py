"""The location of a model's weights."""

from pathlib import Path

from lmi_core.configuration.properties import ModelProperties
from lmi_core.errors import ConfigurationError
from lmi_core.remote.location import S3Location, is_hub_id, is_s3


def model_source(directory: Path, properties: ModelProperties) -> str:
    """Return a folder's path, an `s3://` URL or a hub id.

    Without `option.model_id` the model directory itself holds the weights. Raise ConfigurationError if it has none.
    """
    model_id = properties.model_id
    if model_id is None:
        if not (directory / "config.json").is_file():
            raise ConfigurationError(
                f"{directory} contains no config.json: set option.model_id, or put the model's files there"
            )
        return str(directory)
    if is_s3(model_id):
        S3Location.parse(model_id)
        return model_id
    if "://" in model_id:
        raise ConfigurationError(
            f"option.model_id={model_id} is not a supported URL: give s3://bucket/folder/, the path of a folder, or "
            "a hub id"
        )
    for folder in (directory / model_id, Path(model_id)):
        if (folder / "config.json").is_file():
            return str(folder)
    if (directory / model_id).exists():
        raise ConfigurationError(f"option.model_id={model_id}: there is no config.json in that folder")
    if model_id.startswith((".", "/", "~")):
        raise ConfigurationError(f"option.model_id={model_id}: there is no such folder")
    return model_id


def is_on_hub(source: str) -> bool:
    """Return whether a model's source must be a hub id, as no such folder or file exists."""
    return is_hub_id(source) and not Path(source).exists()
