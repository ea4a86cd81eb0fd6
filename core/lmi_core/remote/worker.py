"""The download process, which can be killed at any time."""

import logging
import os
import sys
import threading
from pathlib import Path

import msgspec

from lmi_core.configuration.location import RemoteModel
from lmi_core.errors import ConfigurationError
from lmi_core.remote import locks
from lmi_core.remote.archives.updating import update_from_archive
from lmi_core.remote.copies import Copies
from lmi_core.remote.errors import ChangedDuringCopy, Unreachable
from lmi_core.remote.hub import copy_from_hub
from lmi_core.remote.report import Failed, Finished, Job, Report
from lmi_core.remote.s3.download import update_from_s3
from lmi_core.remote.space import explain
from lmi_core.workers.channel import Channel

CHATTY = ("botocore", "boto3", "urllib3", "httpx", "httpx2")  # they log routine work at level INFO
PROGRESS_VARIABLES = ("HF_HUB_DISABLE_PROGRESS_BARS", "TQDM_DISABLE")
MAX_ATTEMPTS = 3  # if the model changes during the download


decode_job = msgspec.msgpack.Decoder(Job).decode


def run(channel: Channel) -> None:
    """Make the copy that the first message names: the worker's `target`."""
    for name in CHATTY:
        logging.getLogger(name).setLevel(max(logging.WARNING, logging.getLogger().level))
    os.environ |= dict.fromkeys(PROGRESS_VARIABLES, "1")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # printed text belongs in the log
    job = channel.begin(decode_job)
    report = Report(channel.send)
    try:
        if job.model.on_hub and not (folder := copy_from_hub(job.model, report)).is_dir():
            job = Job(RemoteModel(str(folder.absolute())), job.downloads)  # convert a GGUF file
        if not job.model.on_hub:
            folder = make_copy(job.model, Path(job.downloads), report)
    except ConfigurationError as error:
        report.write(Failed(error.message, isinstance(error, Unreachable)))
    except OSError as error:
        report.write(Failed(explain(error, job.model.source, Path(job.downloads), job.model.on_hub)))
    else:
        report.write(Finished(str(folder)))
    threading.Event().wait()  # until the server, which has then read everything, ends this process


def make_copy(model: RemoteModel, downloads: Path, report: Report) -> Path:
    """Return the folder of a complete copy; an older one if the model is unreachable now.

    Raise ConfigurationError if it cannot be copied, or OSError from the disk.
    """
    copies = Copies(model, downloads)
    update = update_from_archive if model.is_archive else update_from_s3
    waiting = f"{model} is already being copied by another process: waiting for it"
    with locks.exclusive(copies.lock, lambda: report.note(waiting, logging.INFO)):
        for _ in range(MAX_ATTEMPTS):
            try:
                return update(model, copies, report)
            except ChangedDuringCopy:
                report.note(f"{model} changed in the meantime: copying the changes")
            except Unreachable as error:
                current = copies.current()
                if current is None:
                    raise
                report.note(f"{error.message}. The copy made earlier is served, which may be out of date")
                return current[0]
        raise ConfigurationError(f"{model} keeps changing: start again once the upload is finished")
