"""Updates of a copy from a listing of files, which transfer only the new ones."""

import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from lmi_core.remote.copies import CopiedFile, Copies, are_whole, file_size, version_of
from lmi_core.remote.report import Report
from lmi_core.remote.space import check_space

Unchanged = Mapping[tuple[str, str], Path]  # files of the current copy by path and identity
# Downloads files into the folder of partial copies, names each by its identity once it is complete, and reports its
# bytes.
Transfer = Callable[[Sequence[CopiedFile], Callable[[int], None]], None]


def update(
    source: str,
    copies: Copies,
    files: Sequence[CopiedFile],
    skipped: int,
    report: Report,
    transfer: Transfer,
) -> Path:
    """Return the folder of a complete copy of these files, after the transfer of missing ones.

    The caller holds the lock. Raise ConfigurationError if there is no room for the files, the errors of `transfer`, or
    OSError from the disk.
    """
    version = version_of(*(each.identity for each in files))
    if (current := copies.current_if(version)) is not None:
        return current
    copy = copies.copy(version)
    if are_whole(copy, files):  # a process ended just before setting the current version
        return copies.set_current(version, files)
    now = copies.current()
    unchanged = {} if now is None else {(each.path, each.identity): now[0] / each.path for each in now[1].files}
    missing = _missing(copies, version, files, unchanged)
    wanted = {each.identity for each in files}
    for path in copies.partial.glob("*"):
        if path.name.partition(".")[0] not in wanted:
            path.unlink()
    needed = sum(each.size for each in missing)
    copies.make_room(version)
    check_space(source, copies.folder, needed)
    total = sum(each.size for each in files)
    there = total - needed
    report.begin(total, there, skipped, copy)
    transfer(missing, lambda done: report.progress(there + done))
    _assemble(copies, version, files, unchanged)
    return copies.publish(version, files)


def _missing(copies: Copies, version: str, files: Sequence[CopiedFile], unchanged: Unchanged) -> list[CopiedFile]:
    """Return the files that are neither in the current copy nor transferred."""
    staged = copies.staging_path(version)
    return [
        each
        for each in files
        if (each.path, each.identity) not in unchanged
        and each.size not in (file_size(staged / each.path), file_size(copies.partial / each.identity))
    ]


def _assemble(copies: Copies, version: str, files: Sequence[CopiedFile], unchanged: Unchanged) -> None:
    """Stage a copy from transferred files and from unchanged ones of the current copy."""
    for each in files:
        target = copies.staging_path(version) / each.path
        target.parent.mkdir(parents=True, exist_ok=True)
        transferred = copies.partial / each.identity
        if transferred.exists():
            transferred.replace(target)
        elif not target.exists():
            source = unchanged[each.path, each.identity]
            try:
                os.link(source, target)
            except OSError:
                unfinished = target.with_name(target.name[:200] + ".copying")
                shutil.copy2(source, unfinished)
                unfinished.replace(target)
