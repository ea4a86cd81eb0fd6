"""Tracebacks for the authors of user code."""

import sys
import traceback
from pathlib import Path


def own_traceback(error: BaseException, directory: Path) -> str:
    """Return the traceback, including causes, without lines of files outside the directory."""
    summary = traceback.TracebackException.from_exception(error)
    _trim(summary, directory.resolve())
    return "".join(summary.format()).rstrip()


def place_in(error: BaseException, author: type) -> str:
    """Return the last line of the author's files in the traceback, as ` (file.py, line 7)`, or "".

    The author's files are that of the class and, unless it is in site-packages, those in the same folder.
    """
    file = getattr(sys.modules.get(author.__module__), "__file__", None)
    if file is None:
        return ""
    own = Path(file).resolve()
    folder = own if own.parent.name == "site-packages" else own.parent
    places = [
        f" ({path.relative_to(own.parent)}, line {line})"
        for frame, line in traceback.walk_tb(error.__traceback__)
        if (path := Path(frame.f_code.co_filename).resolve()).is_relative_to(folder)
    ]
    return "".join(places[-1:])


def _trim(summary: traceback.TracebackException | None, directory: Path) -> None:
    if summary is None:
        return
    summary.stack = traceback.StackSummary.from_list(
        frame for frame in summary.stack if Path(frame.filename).is_relative_to(directory)
    )
    _trim(summary.__cause__, directory)
    _trim(summary.__context__, directory)
