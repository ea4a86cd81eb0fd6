"""Plugins in a model directory that nobody asked for."""

from pathlib import Path

from lmi_handlers.container.launch import unloaded_plugins

PLUGIN = "@lmi.hookimpl\ndef lmi_register_backends(register): ...\n"


def test_a_folder_of_plugins_is_told_until_some_folder_is_loaded(tmp_path: Path) -> None:
    folder = tmp_path / "plugins"
    folder.mkdir()
    (folder / "mine.py").write_text(PLUGIN)
    expected = f"the plugins in {folder} are not loaded: --plugins-dir {folder} loads them"
    assert unloaded_plugins([tmp_path, tmp_path], None) == [expected]
    assert unloaded_plugins([tmp_path], folder) == []


def test_other_files_are_no_plugins(tmp_path: Path) -> None:
    assert unloaded_plugins([tmp_path], None) == []
    folder = tmp_path / "plugins"
    folder.mkdir()
    (folder / "helper.py").write_text("VALUE = 1\n")
    (folder / "mine.py").mkdir()
    (folder / "mine.txt").write_text(PLUGIN)
    assert unloaded_plugins([tmp_path], None) == []
