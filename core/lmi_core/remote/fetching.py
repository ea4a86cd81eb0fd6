"""Copying of remote models to this host, with a display of the progress."""

import asyncio
import contextlib
import logging
import os
import sys
from collections.abc import Mapping
from pathlib import Path

import msgspec

from lmi_core.configuration.cache import download_folder
from lmi_core.errors import ConfigurationError
from lmi_core.remote.location import RemoteModel, is_s3
from lmi_core.remote.progress import ProgressDisplay
from lmi_core.remote.report import Begin, Failed, Note, Progress, read
from lmi_core.remote.s3.copies import Copies
from lmi_core.remote.space import in_words
from lmi_core.remote.worker import Job

logger = logging.getLogger(__name__)


def local_directory(source: str, environment: Mapping[str, str] = os.environ) -> Path:
    """Return the folder of a path or an `s3://` URL, downloading or updating a URL's copy.

    For code outside an event loop. Raise ConfigurationError where the URL is wrong or cannot be copied.
    """
    if not is_s3(source):
        return Path(source)
    return asyncio.run(fetch(RemoteModel(source, everything=True), environment))


def cached_directory(source: str, environment: Mapping[str, str] = os.environ) -> Path:
    """Return the folder of a path, or of the existing copy of an `s3://` URL, without network access.

    Raise ConfigurationError where the URL is invalid or there is no copy.
    """
    if not is_s3(source):
        return Path(source)
    copies = Copies(RemoteModel(source, everything=True), download_folder(environment))
    current = copies.current()
    if current is None:
        raise ConfigurationError(
            f"{source} is not downloaded yet: `lmi serve {source}` downloads it to {copies.folder}"
        )
    return current[0]


async def fetch(model: RemoteModel, environment: Mapping[str, str] = os.environ) -> Path:
    """Return the folder of a complete copy on this host, which is kept while this process lives.

    Cancelling ends the download at once; the next call resumes it. Raise ConfigurationError where it cannot be copied.
    """
    downloads = download_folder(environment)
    while True:
        folder = await _run(Job(model, str(downloads)))
        if not model.in_s3 or Copies(model, downloads).hold(folder):
            return folder


async def fetch_all(models: Mapping[str, RemoteModel]) -> dict[str, Path]:
    """Fetch several models concurrently, and return their folders. Raise ConfigurationError where one cannot be."""
    try:
        async with asyncio.TaskGroup() as group:
            tasks = {name: group.create_task(fetch(model)) for name, model in models.items()}
    except ExceptionGroup as failures:
        raise failures.exceptions[0] from None
    return {name: task.result() for name, task in tasks.items()}


async def _run(job: Job) -> Path:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-P", "-m", "lmi_core.remote.worker", msgspec.json.encode(job).decode()),
        stdin=asyncio.subprocess.PIPE,  # the worker sees it end when this process is gone
        stdout=asyncio.subprocess.PIPE,
        start_new_session=True,
    )
    try:
        return await _follow(process, job.model)
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()


async def _follow(process: asyncio.subprocess.Process, model: RemoteModel) -> Path:
    assert process.stdout is not None
    with ProgressDisplay(model) as display:
        while line := await process.stdout.readline():
            message = read(line)
            if isinstance(message, Begin):
                _log_begin(model, message)
                display.begin(message.total, message.done)
            elif isinstance(message, Progress):
                display.update(message.done)
            elif isinstance(message, Note):
                logger.log(message.level, "%s", message.text)
            elif isinstance(message, Failed):
                raise ConfigurationError(message.message)
            else:
                display.finish()
                return Path(message.folder)
    code = await process.wait()
    raise ConfigurationError(
        f"{model}: the download process ended with exit code {code}: start again to resume the download"
    )


def _log_begin(model: RemoteModel, begin: Begin) -> None:
    before = f", {in_words(begin.done)} of which are already there" if begin.done else ""
    without = f"; skipped: {in_words(begin.skipped)} in formats that are not needed" if begin.skipped else ""
    logger.info("downloading %s to %s: %s%s%s", model, begin.folder, in_words(begin.total), before, without)
