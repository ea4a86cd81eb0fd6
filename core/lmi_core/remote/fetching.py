"""Copying of remote models to this host, with a display of the progress."""

import asyncio
import contextlib
import logging
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from pathlib import Path

from lmi_core.configuration.cache import download_folder
from lmi_core.configuration.location import RemoteModel, is_s3, is_web, must_be_copied
from lmi_core.errors import ConfigurationError
from lmi_core.errors.sizes import readable
from lmi_core.logs.loading_progress import LoadingProgress, Report
from lmi_core.logs.logs import LOG_LEVEL_VARIABLE
from lmi_core.logs.progress_display import show_progress
from lmi_core.remote.copies import Copies
from lmi_core.remote.errors import Unreachable
from lmi_core.remote.held_copies import HeldCopies, hold, release_copy
from lmi_core.remote.hub import cached_snapshot
from lmi_core.remote.progress import DownloadProgress
from lmi_core.remote.report import Begin, Failed, Finished, Job, Message, Note, Progress, decode
from lmi_core.workers.conversation import WorkerDied
from lmi_core.workers.local_process import LocalProcess
from lmi_core.workers.messages import encode

logger = logging.getLogger(__name__)

TARGET = "lmi_core.remote.worker:run"


def local_directory(source: str) -> Path:
    """Return the folder of a path, an archive or a URL, downloading, unpacking or updating the copy.

    For code outside an event loop. Raise ConfigurationError if the URL is invalid or cannot be copied.
    """
    if not must_be_copied(source):
        return Path(source)
    return asyncio.run(fetch(whole_model(source)))


def cached_directory(source: str) -> Path:
    """Return the folder of a path, of an archive on this host, or of a URL's existing copy, without network access.

    Raise ConfigurationError if the URL is invalid or there is no copy.
    """
    if not is_s3(source) and not is_web(source):
        return local_directory(source)
    model = whole_model(source)
    copies = Copies(model, download_folder(os.environ))
    current = copies.current()
    if current is None:
        raise ConfigurationError(f"{model} is not downloaded yet: `lmi serve {model}` downloads it to {copies.folder}")
    return current[0]


def whole_model(source: str) -> RemoteModel:
    """Return the model directory of a URL, or of an archive's path, with all its files."""
    return RemoteModel(source if is_s3(source) or is_web(source) else str(Path(source).resolve()), everything=True)


def forecast(model: RemoteModel) -> str:
    """Return a sentence about the future or existing copy of the model, without network access."""
    if model.on_hub:
        from huggingface_hub.constants import HF_HUB_CACHE, HF_HUB_OFFLINE

        if (snapshot := cached_snapshot(model)) is not None:
            newer = "" if HF_HUB_OFFLINE else "; a newer revision will be downloaded"
            return f"{model} is in {snapshot}{newer}"
        if HF_HUB_OFFLINE:
            return f"{model} is not in {Path(HF_HUB_CACHE)}, and HF_HUB_OFFLINE is set"
        return f"{model} will be downloaded from the Hugging Face hub to {Path(HF_HUB_CACHE)}"
    copies = Copies(model, download_folder(os.environ))
    current = copies.current()
    if current is None:
        return f"{model} will be {'unpacked' if model.is_archive else 'downloaded'} to {copies.folder}"
    folder, contents = current
    update = "if it has changed since, it will be unpacked again"
    if not model.is_archive:
        update = "files that have changed since will be downloaded"
    return f"{model} is in {folder} ({readable(sum(each.size for each in contents.files))}); {update}"


async def fetch(model: RemoteModel, report: Report | None = None) -> Path:
    """Return the folder of a complete copy on this host, kept until `release_copy` or the end of this process.

    Show the progress on standard error, or pass it to `report`. Cancelling stops the download immediately; the next
    call resumes it. Raise ConfigurationError if it cannot be copied.
    """
    if report is None:
        progress = LoadingProgress()
        with show_progress({str(model): progress}):
            return await fetch(model, progress.report)
    downloads = download_folder(os.environ)
    while True:
        folder = await _run(Job(model, str(downloads)), report)
        if hold(folder):
            return folder


@contextlib.asynccontextmanager
async def fetched(model: RemoteModel, report: Report | None = None) -> AsyncIterator[Path]:
    """Yield the folder of a copy, which is released at the end; to use it longer, keep it in HeldCopies."""
    folder = await fetch(model, report)
    try:
        yield folder
    finally:
        release_copy(folder)


async def fetch_all(
    models: Mapping[str, RemoteModel], copies: HeldCopies, report: Report | None = None
) -> dict[str, Path]:
    """Fetch several models concurrently, keep their copies by name, and return their folders.

    Raise ConfigurationError if one cannot be copied.
    """

    async def keep(name: str, model: RemoteModel) -> Path:
        async with fetched(model, report) as folder:
            copies.keep(name, folder)
            return folder

    try:
        async with asyncio.TaskGroup() as group:
            tasks = {name: group.create_task(keep(name, model)) for name, model in models.items()}
    except ExceptionGroup as failures:
        raise failures.exceptions[0] from None
    return {name: task.result() for name, task in tasks.items()}


async def _run(job: Job, report: Report) -> Path:
    process = LocalProcess(TARGET, {LOG_LEVEL_VARIABLE: "warning"})
    try:
        await process.start()
        await process.receive()  # Started
        process.send(encode(job))

        async def receive() -> Message:
            message: Message = decode(await process.receive())
            return message

        return await follow(receive, DownloadProgress(job.model, report))
    except WorkerDied as death:
        raise ConfigurationError(f"{job.model}: {death}: start again to resume the download") from None
    finally:
        process.kill()
        await process.stop()


async def follow(receive: Callable[[], Awaitable[Message]], progress: DownloadProgress) -> Path:
    """Return the folder of the copy once it is finished. Raise ConfigurationError or Unreachable if it fails."""
    while not isinstance(message := await receive(), Finished):
        if isinstance(message, Begin):
            progress.begin(message)
        elif isinstance(message, Progress):
            progress.update(message.done)
        elif isinstance(message, Note):
            logger.log(message.level, "%s", message.text)
        elif isinstance(message, Failed):
            raise (Unreachable if message.is_unreachable else ConfigurationError)(message.message)
    progress.finish()
    return Path(message.folder)
