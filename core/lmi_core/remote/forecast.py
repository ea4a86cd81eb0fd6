"""The report of `lmi check` on a remote model, without network access."""

from collections.abc import Mapping
from pathlib import Path

from lmi_core.configuration.cache import download_folder
from lmi_core.configuration.location import RemoteModel
from lmi_core.errors.sizes import in_words
from lmi_core.remote.archives.copies import ArchiveCopies
from lmi_core.remote.s3.copies import Copies


def forecast(model: RemoteModel, environment: Mapping[str, str]) -> str:
    """Return a sentence about where the model will be copied to, or about the existing copy."""
    if model.on_hub:
        return _hub_forecast(model)
    if model.is_archive:
        return _archive_forecast(model, ArchiveCopies(model, download_folder(environment)))
    copies = Copies(model, download_folder(environment))
    current = copies.current()
    if current is None:
        return f"{model} will be downloaded to {copies.folder}"
    folder, listing = current
    return f"{model} is in {folder} ({in_words(listing.size)}); what has changed since will be downloaded"


def _archive_forecast(model: RemoteModel, copies: ArchiveCopies) -> str:
    current = copies.current()
    if current is None:
        return f"{model} will be unpacked to {copies.folder}"
    return f"{model} is in {current[0]} ({in_words(copies.size())}); if it has changed since, it will be unpacked anew"


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
