"""Tracebacks for the authors of user code."""

import logging
import traceback
from pathlib import Path

from lmi_core.errors import FormatterFailed

logger = logging.getLogger(__name__)


def own_traceback(error: BaseException, directory: Path) -> str:
    """Return the traceback, including causes, without lines of files outside the directory."""
    summary = traceback.TracebackException.from_exception(error)
    _trim(summary, directory.resolve())
    return "".join(summary.format()).rstrip()


def formatter_failure(
    formatter: str, error: BaseException, directory: Path, module: str, request_id: str
) -> FormatterFailed:
    """Log the exception of a formatter in a module in the directory, and return the error for the client."""
    logger.error("request %s: the %s raised\n%s", request_id, formatter, own_traceback(error, directory))
    return FormatterFailed(f"the {formatter} raised {type(error).__name__}: {error}{place_in(error, module)}")


def place_in(error: BaseException, *modules: str) -> str:
    """Return the last line of the modules' packages in the traceback, as ` (package/file.py, line 7)`, or "".

    A package is everything below a top-level name.
    """
    packages = {module.partition(".")[0] for module in modules}
    place = ""
    for frame, line in traceback.walk_tb(error.__traceback__):
        if str(frame.f_globals.get("__name__")).partition(".")[0] in packages:
            package = frame.f_globals.get("__package__")
            depth = 1 if not package else 2 + package.count(".")
            place = f" ({Path(*Path(frame.f_code.co_filename).parts[-depth:])}, line {line})"
    return place


def _trim(summary: traceback.TracebackException | None, directory: Path) -> None:
    if summary is None:
        return
    summary.stack = traceback.StackSummary.from_list(
        frame for frame in summary.stack if Path(frame.filename).is_relative_to(directory)
    )
    _trim(summary.__cause__, directory)
    _trim(summary.__context__, directory)
