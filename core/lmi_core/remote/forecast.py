"""The report of `lmi check` on a remote model, without network access."""

from collections.abc import Mapping
from pathlib import Path

from lmi_core.configuration.cache import download_folder
from lmi_core.configuration.location import RemoteModel
from lmi_core.errors.sizes import readable
from lmi_core.remote.copies import Copies


def forecast(model: RemoteModel, environment: Mapping[str, str]) -> str:
    """Return a sentence about the future or existing copy of the model."""
    if model.on_hub:
        return _hub_forecast(model)
    copies = Copies(model, download_folder(environment))
    current = copies.current()
    if current is None:
        return f"{model} will be {'unpacked' if model.is_archive else 'downloaded'} to {copies.folder}"
    folder, contents = current
    update = "if it has changed since, it will be unpacked again"
    if not model.is_archive:
        update = "files that have changed since will be downloaded"
    return f"{model} is in {folder} ({readable(contents.size)}); {update}"


def _hub_forecast(model: RemoteModel) -> str:
    from huggingface_hub.constants import HF_HUB_CACHE, HF_HUB_OFFLINE

    from lmi_core.remote.hub_cache import cached_snapshot

    folder = cached_snapshot(model)
    if folder is not None:
        newer = "" if HF_HUB_OFFLINE else "; a newer revision will be downloaded"
        return f"{model} is in {folder}{newer}"
    if HF_HUB_OFFLINE:
        return f"{model} is not in {Path(HF_HUB_CACHE)}, and HF_HUB_OFFLINE is set"
    return f"{model} will be downloaded from the Hugging Face hub to {Path(HF_HUB_CACHE)}"
