"""Where a model's weights are."""

from pathlib import Path

from lmi_core.errors import ConfigurationError
from lmi_core.properties import ModelProperties


def model_source(directory: Path, properties: ModelProperties) -> str:
    """A folder's path, or a hub id. Without `option.model_id` the model directory itself holds the weights."""
    model_id = properties.model_id
    if model_id is None:
        if not (directory / "config.json").is_file():
            raise ConfigurationError(
                f"{directory} holds no config.json: set option.model_id, or put the model's files there"
            )
        return str(directory)
    if "://" in model_id:
        raise ConfigurationError(
            f"option.model_id={model_id} is a URL: download the model, and give the folder's path or a hub id"
        )
    for folder in (directory / model_id, Path(model_id)):
        if (folder / "config.json").is_file():
            return str(folder)
    if model_id.startswith((".", "/", "~")) or (directory / model_id).exists():
        raise ConfigurationError(f"option.model_id={model_id}: there is no config.json in that folder")
    return model_id
