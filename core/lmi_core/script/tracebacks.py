"""Tracebacks for the authors of user code."""

import traceback
from pathlib import Path


def own_traceback(error: BaseException, directory: Path) -> str:
    """Return the traceback, including causes, without lines of files outside the directory."""
    summary = traceback.TracebackException.from_exception(error)
    _trim(summary, directory.resolve())
    return "".join(summary.format()).rstrip()


def _trim(summary: traceback.TracebackException | None, directory: Path) -> None:
    if summary is None:
        return
    summary.stack = traceback.StackSummary.from_list(
        frame for frame in summary.stack if Path(frame.filename).is_relative_to(directory)
    )
    _trim(summary.__cause__, directory)
    _trim(summary.__context__, directory)
