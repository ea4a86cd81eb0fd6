"""The reference page of the Python interface describes every name."""

import re

from lmi_core import errors
from tests.docs.pages import page
from tools.docs.public_interface import MODULES, public_objects

PAGE = page("python.md").read_text(encoding="utf-8")


def test_every_name_has_an_entry_with_text() -> None:
    entries = dict(re.findall(r"^### `(\w+)[^\n]*\n\n(\S[^\n]*)", PAGE, re.MULTILINE))
    names = {name for module in MODULES for name in public_objects(module)}
    assert names - entries.keys() == set()
    assert {name for name in names if not re.match(r"[A-Z]", entries[name])} == set()


def test_every_error_has_its_status() -> None:
    rows = dict(re.findall(r"^\| `(\w+)` \| `(\w+)` \| \d{3} \|$", PAGE, re.MULTILINE))
    public = {name for name in public_objects("lmi") if issubclass(getattr(errors, name, int), errors.LmiError)}
    assert {name: getattr(errors, name).kind for name in public} == rows
