"""Plugins written by `lmi new`, which work unchanged."""

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

from lmi_core.errors import ConfigurationError
from lmi_handlers.cli.new_command import write_new

# Its tests need no other plugin. `-p` does what the entry point does where it is installed, under the same name.
OPTIONS = ("-p", "lmi_handlers.testing", "-o", "faulthandler_timeout=30")
KINDS = ("formatter", "handler", "backend")


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_written_passes_its_own_test(kind: str, tmp_path: Path) -> None:
    words = write_new(kind, "my_own", tmp_path)
    assert f"pytest {tmp_path / 'my_own'} " in words
    result = subprocess.run(
        [sys.executable, "-W", "error", "-m", "pytest", "-q", "-p", "no:cacheprovider", *OPTIONS, "my_own"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=110,
        env=os.environ | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
    )
    assert result.returncode == 0, result.stdout + result.stderr
    for source in (tmp_path / "my_own").rglob("*.py"):
        assert ast.get_docstring(ast.parse(source.read_text())) or source.name.startswith("test_")


@pytest.mark.parametrize(("kind", "name"), [("backend", "torch"), ("formatter", "jsonlines"), ("handler", "tgi")])
def test_taken_name(kind: str, name: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError) as raised:
        write_new(kind, name, tmp_path)
    assert raised.value.message == f"the {kind} `{name}` already exists (see lmi plugins): choose another name"
    assert not (tmp_path / name).exists()


def test_names_of_python(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="it is a Python keyword"):
        write_new("handler", "class", tmp_path)
    with pytest.raises(ConfigurationError, match="a Python package or module `pydantic` already exists"):
        write_new("handler", "pydantic", tmp_path, package=True)


@pytest.mark.parametrize("name", ["My", "my-own", "2nd", ""])
def test_bad_name(name: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="is not a valid name for a formatter"):
        write_new("formatter", name, tmp_path)


def test_folder_that_exists(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    with pytest.raises(ConfigurationError, match="mine already exists"):
        write_new("backend", "mine", tmp_path)
