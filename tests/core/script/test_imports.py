"""Modules beside model.py, which nobody else sees, and which see nobody else's."""

import sys
from pathlib import Path

import pytest

from lmi_core.script.imports import ScriptImporter


def write(folder: Path, **files: str) -> Path:
    """A keyword `a__b` is the file a/b.py."""
    for name, text in files.items():
        path = folder / f"{name.replace('__', '/')}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


@pytest.mark.parametrize(
    "statement",
    [
        "import helper\nfound = helper.NAME",
        "import helper as other\nfound = other.NAME",
        "from helper import NAME as found",
        "from helper import *\nfound = NAME",
        "import package.inner\nfound = package.inner.NAME",
        "import package.inner as inner\nfound = inner.NAME",
        "from package import inner\nfound = inner.NAME",
        "from package.inner import NAME as found",
        "from package.relative import NAME as found",
        "from folder.inner import NAME as found",
        "found = __import__('helper').NAME",
        "def lazily():\n    import helper\n    return helper.NAME\nfound = lazily()",
    ],
)
def test_import_statements(tmp_path: Path, statement: str) -> None:
    one = "NAME = 'mine'\n"
    files = {"helper": one, "package__inner": one, "package__relative": "from .inner import NAME", "folder__inner": one}
    write(tmp_path, model=statement, package____init__="", **files)
    before = set(sys.modules)
    importer = ScriptImporter(tmp_path)
    assert importer.load("model").found == "mine"
    assert "helper" not in sys.modules
    importer.unload()
    assert {name for name in set(sys.modules) - before if name.startswith("lmi_script")} == set()
    assert importer not in sys.meta_path


def test_modules_of_one_name_do_not_collide(tmp_path: Path) -> None:
    modules = []
    for name in ("one", "two"):
        write(tmp_path / name, model="import helper\n", helper=f"NAME = '{name}'\n")
        modules.append(ScriptImporter(tmp_path / name).load("model"))
    assert [module.helper.NAME for module in modules] == ["one", "two"]


def test_its_own_modules_come_before_installed_ones_for_it_alone(tmp_path: Path) -> None:
    write(tmp_path, model="import colorsys, pathlib\n", colorsys="NAME = 'mine'\n")
    module = ScriptImporter(tmp_path).load("model")
    import colorsys

    assert module.colorsys.NAME == "mine"
    assert not hasattr(colorsys, "NAME")
    assert module.pathlib.Path is Path


def test_a_folder_without_modules_hides_no_package(tmp_path: Path) -> None:
    (tmp_path / "orjson").mkdir()
    module = ScriptImporter(write(tmp_path, model="import orjson\n")).load("model")
    assert module.orjson.loads("[1]") == [1]


def test_module_that_is_missing(tmp_path: Path) -> None:
    with pytest.raises(ModuleNotFoundError) as raised:
        ScriptImporter(write(tmp_path, model="import nothing_of_that_name\n")).load("model")
    assert raised.value.name == "nothing_of_that_name"


def test_what_fails_to_load_is_dropped(tmp_path: Path) -> None:
    importer = ScriptImporter(write(tmp_path, model="import helper\nhelper.missing\n", helper=""))
    before = set(sys.modules)
    with pytest.raises(AttributeError):
        importer.load("model")
    assert set(sys.modules) == before


def test_a_changed_file_is_read_again_and_nothing_is_written(tmp_path: Path) -> None:
    for name in ("one", "two"):
        write(tmp_path, model="import helper\n", helper=f"NAME = '{name}'\n")
        module = ScriptImporter(tmp_path).load("model")
        found = module.helper.NAME
        assert found == name
    assert sorted(path.name for path in tmp_path.iterdir()) == ["helper.py", "model.py"]
