"""A host whose processes do not find the folders that another host has."""

import os
from collections.abc import Mapping
from pathlib import Path

CODE = """
import os, sys

hidden = os.environ["TEST_HIDDEN"]
status = os.stat

def is_hidden(path):
    return isinstance(path, str | os.PathLike) and os.fspath(path).startswith(hidden)

def stat(path, *arguments, **more):
    if is_hidden(path):
        raise FileNotFoundError(2, "hidden by the test", os.fspath(path))
    return status(path, *arguments, **more)

def refuse(event, arguments):
    if event == "open" and is_hidden(arguments[0]):
        raise FileNotFoundError(2, "hidden by the test", os.fspath(arguments[0]))

os.stat = stat
sys.addaudithook(refuse)
"""


def environment_hiding(hidden: Path, folder: Path, more: str = "") -> Mapping[str, str]:
    """Return variables with which Python's processes do not see a folder, and have a cache of their own in another.

    They run `more` code when they start.
    """
    code = folder / "code"
    code.mkdir(parents=True)
    (code / "sitecustomize.py").write_text(CODE + more)
    paths = os.pathsep.join(filter(None, (str(code), os.environ.get("PYTHONPATH"))))
    return {"PYTHONPATH": paths, "TEST_HIDDEN": str(hidden), "LMI_CACHE": str(folder / "cache")}
