"""The download process, which can be ended at any time, whatever its threads wait for."""

import errno
import logging
import os
import sys
from pathlib import Path

import msgspec

from lmi_core.configuration.cache import CACHE_VARIABLE, DOWNLOAD_VARIABLE
from lmi_core.configuration.location import RemoteModel, without_secrets
from lmi_core.errors import ConfigurationError
from lmi_core.logs.logs import LOG_LEVEL_VARIABLE, configure_logging
from lmi_core.remote.copying import make_copy
from lmi_core.remote.hub import copy_from_hub
from lmi_core.remote.report import Failed, Finished, Report
from lmi_core.remote.space import REMEDY
from lmi_core.workers.process_signals import leave_signals_to_parent

CHATTY = ("botocore", "boto3", "urllib3", "httpx", "httpx2")  # log routine work at level INFO
JOB_VARIABLE = "LMI_DOWNLOAD_JOB"  # set for this process alone
PROGRESS_VARIABLE = "HF_HUB_DISABLE_PROGRESS_BARS"


class Job(msgspec.Struct, frozen=True):
    """The copy to make."""

    model: RemoteModel
    downloads: str


def main() -> None:
    """Make the copy, with messages on standard output and libraries' logs on standard error."""
    leave_signals_to_parent()
    configure_logging(os.environ.get(LOG_LEVEL_VARIABLE, "warning"))
    for name in CHATTY:
        logging.getLogger(name).setLevel(max(logging.WARNING, logging.getLogger().level))
    os.environ[PROGRESS_VARIABLE] = "1"
    report = Report(os.fdopen(os.dup(sys.stdout.fileno()), "w"))
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # anything else printed is not a message
    wanted = msgspec.json.decode(os.environ.pop(JOB_VARIABLE), type=Job)
    try:
        model = wanted.model
        folder = copy_from_hub(model, report) if model.on_hub else make_copy(model, Path(wanted.downloads), report)
    except ConfigurationError as error:
        report.write(Failed(error.message))
    except OSError as error:
        report.write(Failed(explained(error, wanted)))
    else:
        report.write(Finished(str(folder)))
    os._exit(0)  # do not wait for the threads of a failed download


def explained(error: OSError, job: Job) -> str:
    source = without_secrets(job.model.source)
    variable = "HF_HOME" if job.model.on_hub else _variable()
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return f"{source}: the disk of {error.filename or job.downloads} is full: {REMEDY.format(variable)}"
    where = error.filename or job.downloads
    if where == job.model.source:
        return f"{source} cannot be read: {error.strerror or error}"
    return f"{source} cannot be written to {where}: {error.strerror or error}: set {variable} to another folder"


def _variable() -> str:
    return DOWNLOAD_VARIABLE if os.environ.get(DOWNLOAD_VARIABLE) else CACHE_VARIABLE


if __name__ == "__main__":
    main()
