"""The reference page of the Python interface describes every name."""

import re

import pytest

import lmi
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


@pytest.mark.parametrize("name", ["EngineFigures", "GenerationStep", "Token", "Usage"])
def test_structs_and_named_tuples_have_signatures(name: str) -> None:
    fields = [f"{each}: " for each in getattr(lmi, name).__annotations__]
    (heading,) = re.findall(rf"^### `{name}\((.*)\) -> None`$", PAGE, re.MULTILINE)
    assert re.findall(r"\b\w+: ", heading) == fields


def test_aliases_that_are_not_public_are_spelt_out() -> None:
    assert "#### `stop_sequences: list[str] | None`\n" in PAGE
    assert "#### `truncation_side: Literal['left', 'right'] | None`\n" in PAGE
    assert "StopSequence" not in PAGE
    assert "finish_reason: FinishReason | None" in PAGE  # which the page describes
