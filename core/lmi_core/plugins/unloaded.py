"""Plugins in model directories, which are loaded only if --plugins-dir names their folder."""

from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

FOLDER = "plugins"
HOOK = b"def lmi_register_"


def unloaded_plugins(directories: Iterable[Path], plugins_directory: Path | None) -> list[str]:
    """Return a warning for each model directory with plugins that are not loaded; none if a plugins folder is given."""
    if plugins_directory is not None:
        return []
    folders = dict.fromkeys(directory / FOLDER for directory in directories)
    return [
        f"the plugins in {folder} are not loaded: --plugins-dir {folder} loads them"
        for folder in folders
        if _has_plugin(folder)
    ]


def _has_plugin(folder: Path) -> bool:
    with suppress(OSError):
        return any(HOOK in file.read_bytes() for file in folder.glob("*.py"))
    return False
