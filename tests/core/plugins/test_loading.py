import importlib
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lmi_core.backend import Backend
from lmi_core.configuration.properties import ModelProperties
from lmi_core.errors import LmiError, PluginError
from lmi_core.formatter import AnswerSchema, ChatFormatter, OutputFormatter, Variant
from lmi_core.generation.output import GenerationOutput
from lmi_core.hookspecs import hookimpl
from lmi_core.plugins.loading import BUILTIN_PLUGINS, Plugins, import_file, load_plugins
from lmi_plugins.backends.scripted import ScriptedBackend
from lmi_plugins.formatters.json import JsonFormatter

HOOKS = ("lmi_register_backends", "lmi_register_formatters", "lmi_register_handlers")

PLUGIN = """\
from lmi_core.hookspecs import hookimpl
from lmi_plugins.formatters.json import JsonFormatter

class Formatter(JsonFormatter):
    name = "{name}"

@hookimpl
def lmi_register_formatters(register):
    register(Formatter)
"""


LMI_CHAT = ("lmi_chat", "lmi_chat_jsonlines", "lmi_chat_sse")


class Adds:
    """A plugin that registers these formatters."""

    def __init__(self, *formatters: Any) -> None:
        self.formatters = formatters

    @hookimpl
    def lmi_register_formatters(self, register: Callable[[type[OutputFormatter]], None]) -> None:
        for formatter in self.formatters:
            register(formatter)


class LoudFormatter(JsonFormatter):
    name = "loud"


class OtherLoudFormatter(JsonFormatter):
    name = "loud"


class NamelessFormatter(OutputFormatter):
    pass


class SchedulerBackend(ScriptedBackend):
    name = "scheduler"


Distribution = Callable[[str, dict[str, str]], None]


@pytest.fixture
def distribution(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Distribution:
    """`distribution("name", {"entry": "module:attribute"})` installs one with entry points in the group `lmi`."""
    packages = tmp_path / "site-packages"
    packages.mkdir()
    monkeypatch.syspath_prepend(str(packages))

    def install(name: str, entries: dict[str, str]) -> None:
        information = packages / f"{name}-1.0.dist-info"
        information.mkdir()
        (information / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        lines = [f"{entry} = {value}\n" for entry, value in entries.items()]
        (information / "entry_points.txt").write_text("[lmi]\n" + "".join(lines))
        importlib.invalidate_caches()

    return install


def error_of(*modules: object, directory: Path | None = None) -> str:
    with pytest.raises(PluginError) as raised:
        load_plugins(directory, modules)
    return raised.value.message


def names(plugins: Plugins) -> set[str]:
    return {formatter.name for formatter in plugins.formatters}


def test_built_ins() -> None:
    plugins = load_plugins()
    assert {"torch", "scripted"} <= {backend.name for backend in plugins.backends}
    assert {"json", "jsonlines", "sse", "tgi_json", "tgi_jsonlines", "tgi_sse", "none"} <= names(plugins)
    assert "lmi" in {handler.name for handler in plugins.handlers}


@pytest.mark.parametrize("name", BUILTIN_PLUGINS)
def test_every_built_in_registers_by_hook(name: str) -> None:
    module = importlib.import_module(name)
    assert any(hasattr(module, hook) for hook in HOOKS)


def test_two_loads_are_independent() -> None:
    first, second = load_plugins(modules=[Adds(LoudFormatter)]), load_plugins()
    assert names(first) - names(second) == {"loud"}
    assert load_plugins(modules=[Adds(OtherLoudFormatter)]).formatters.get("loud") is OtherLoudFormatter
    assert first.formatters.get("loud") is LoudFormatter


def test_duplicate_name_names_both_origins() -> None:
    message = error_of(Adds(LoudFormatter), Adds(OtherLoudFormatter))
    assert message.startswith("two plugins register the output formatter `loud`: ")
    assert f"{__name__}.LoudFormatter" in message
    assert f"{__name__}.OtherLoudFormatter" in message


class LoudTgiFormatter(JsonFormatter):
    name = "loud_tgi"
    variant = Variant("loud", AnswerSchema.TGI_COMPAT)


class LouderTgiFormatter(LoudTgiFormatter):
    name = "louder_tgi"


class OtherTgiFormatter(JsonFormatter):
    name = "other_tgi"
    variant = Variant("loud", AnswerSchema.TGI_COMPAT)


def test_variant_of_a_formatter() -> None:
    formatters = load_plugins(
        modules=[Adds(LoudFormatter), Adds(LoudTgiFormatter), Adds(LouderTgiFormatter)]
    ).formatters
    assert formatters.variant("loud", AnswerSchema.TGI_COMPAT) == "loud_tgi"
    assert formatters.variant("loud", AnswerSchema.CHAT) == "loud"
    assert formatters.variant("json", AnswerSchema.CHAT) == "lmi_chat"


def test_two_variants_of_a_formatter_name_both_origins() -> None:
    message = error_of(Adds(LoudTgiFormatter), Adds(OtherTgiFormatter))
    assert message.startswith("two plugins register a variant of the output formatter `loud` for option.tgi_compat: ")
    assert f"{__name__}.LoudTgiFormatter" in message
    assert f"{__name__}.OtherTgiFormatter" in message


class AskingFormatter(JsonFormatter):
    name = "asking"

    def __init__(self, who: str) -> None:
        self.who = who


class OwnChatFormatter(ChatFormatter):
    name = "own_chat"
    content_type = "text/plain"

    def format(self, output: GenerationOutput) -> bytes:
        return output.delta.encode()

    def error(self, error: LmiError) -> bytes:
        return b""


def test_formatter_that_needs_arguments_is_for_its_own_handler_alone() -> None:
    message = error_of(Adds(AskingFormatter))
    assert message.startswith(f"the output formatter {__name__}.AskingFormatter must be creatable without arguments")


def test_formatters_of_chats_are_created_with_the_chat() -> None:
    plugins = load_plugins(modules=[Adds(OwnChatFormatter)])
    assert {each.name for each in plugins.formatters.of_chats} == {*LMI_CHAT, "own_chat"}
    assert "own_chat" not in plugins.formatters


def test_name_of_a_built_in_is_taken() -> None:
    class MyJson(JsonFormatter):
        name = "json"

    message = error_of(Adds(MyJson))
    assert "lmi_plugins.formatters.json.JsonFormatter" in message
    assert "MyJson" in message


def test_alias_of_a_built_in_is_taken() -> None:
    class Plugin:
        @hookimpl
        def lmi_register_backends(self, register: Callable[[type[Backend[Any]]], None]) -> None:
            register(SchedulerBackend)

    message = error_of(Plugin())
    assert message.startswith("two plugins register the backend `scheduler`: ")
    assert "lmi_plugins.backends.torch.TorchBackend" in message


def test_unknown_name_lists_the_known_ones_with_a_suggestion() -> None:
    with pytest.raises(PluginError) as raised:
        load_plugins().backends.get("scriptd")
    assert raised.value.message.startswith("there is no backend `scriptd`. Did you mean `scripted`? Known: ")
    assert "torch" in raised.value.message


def test_misspelt_hook() -> None:
    class Misspelt:
        @hookimpl
        def lmi_register_backend(self, register: Callable[[type[Backend[Any]]], None]) -> None:
            raise AssertionError

    message = error_of(Misspelt())
    assert "unknown hook 'lmi_register_backend'" in message
    assert "Misspelt" in message
    assert message.endswith(f"Known: {', '.join(HOOKS)}")


def test_hook_without_its_mark(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(PLUGIN.format(name="mine").replace("@hookimpl\n", ""))
    assert error_of(directory=tmp_path) == (
        f"the plugin {tmp_path / 'mine.py'} has lmi_register_formatters without @hookimpl (lmi_core.hookspecs)"
    )


def test_wrong_argument_of_a_hook() -> None:
    class Wrong:
        @hookimpl
        def lmi_register_formatters(self, registry: Callable[[type[OutputFormatter]], None]) -> None:
            raise AssertionError

    message = error_of(Wrong())
    assert "Wrong" in message
    assert "'registry'" in message
    assert "lmi_register_formatters" in message


@pytest.mark.parametrize("plugin", [NamelessFormatter, ScriptedBackend, OutputFormatter, LoudFormatter()])
def test_what_is_no_formatter(plugin: object) -> None:
    assert "must be a subclass of OutputFormatter with a `name`" in error_of(Adds(plugin))


class HalfABackend(Backend[ModelProperties]):
    name = "half"

    async def start(self) -> None:
        raise AssertionError


def test_what_a_plugin_lacks() -> None:
    half: Any = HalfABackend

    class Half:
        @hookimpl
        def lmi_register_backends(self, register: Callable[[type[Backend[Any]]], None]) -> None:
            register(half)

    assert error_of(Half()) == f"the backend {__name__}.HalfABackend lacks properties_type, generate, health, stop"


def test_duplicate_name_names_the_file(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(PLUGIN.format(name="json"))
    assert f"{tmp_path / 'mine.py'}:Formatter" in error_of(directory=tmp_path)


def test_plugins_directory(tmp_path: Path) -> None:
    (tmp_path / "one.py").write_text(PLUGIN.format(name="one"))
    (tmp_path / "json.py").write_text(PLUGIN.format(name="two"))
    (tmp_path / "notes.txt").write_text("not Python")
    plugins = load_plugins(tmp_path)
    assert names(plugins) - names(load_plugins()) == {"one", "two"}
    assert sys.modules["json"] is json


@pytest.mark.parametrize("path", ["nowhere", "mine.py"])
def test_plugins_directory_that_is_none(tmp_path: Path, path: str) -> None:
    (tmp_path / "mine.py").touch()
    assert error_of(directory=tmp_path / path) == f"{tmp_path / path} is not a folder"


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("1 / 0", "ZeroDivisionError: division by zero"),
        ("import no_such_module", "ModuleNotFoundError: No module named 'no_such_module'"),
        ("def", "SyntaxError: invalid syntax"),
        ("raise SystemExit(3)", "SystemExit: 3"),
    ],
)
def test_broken_file_is_named_with_its_error(tmp_path: Path, text: str, error: str) -> None:
    (tmp_path / "good.py").write_text(PLUGIN.format(name="good"))
    (tmp_path / "mine.py").write_text(text)
    message = error_of(directory=tmp_path)
    assert message.startswith(f"the plugin {tmp_path / 'mine.py'} cannot be imported: {error}")


def test_broken_file_is_named_with_its_line(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("x = 1\ny = x / 0\n")
    assert error_of(directory=tmp_path).endswith("ZeroDivisionError: division by zero (mine.py, line 2)")


def test_hook_that_raises(tmp_path: Path) -> None:
    lines = ("from lmi import hookimpl", "@hookimpl", "def lmi_register_formatters(register):", "    register(Missing)")
    (tmp_path / "mine.py").write_text("\n".join(lines))
    assert error_of(directory=tmp_path) == (
        "a plugin's lmi_register_formatters raised NameError: name 'Missing' is not defined (mine.py, line 4)"
    )


def test_misspelt_hook_in_a_file_names_the_file(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(PLUGIN.format(name="mine").replace("formatters(", "formatter("))
    message = error_of(directory=tmp_path)
    assert "unknown hook 'lmi_register_formatter'" in message
    assert str(tmp_path / "mine.py") in message


def test_files_of_one_stem_do_not_collide(tmp_path: Path) -> None:
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "mine.py").write_text(PLUGIN.format(name=folder))
    modules = [import_file(tmp_path / folder / "mine.py") for folder in ("a", "b")]
    assert modules[0].__name__ != modules[1].__name__
    assert {"a", "b"} <= names(load_plugins(modules=modules))


def test_imported_file_is_a_module_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("class Mine:\n    pass\n")
    module = import_file(tmp_path / "mine.py")
    assert sys.modules[module.__name__] is module
    assert module.Mine.__module__ == module.__name__


def test_entry_point_of_a_module(tmp_path: Path, distribution: Distribution) -> None:
    (tmp_path / "site-packages" / "lmi_test_installed.py").write_text(PLUGIN.format(name="installed"))
    distribution("lmi_test_plugin", {"installed": "lmi_test_installed"})
    assert "installed" in load_plugins().formatters


def test_entry_point_of_an_object(distribution: Distribution, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "lmi_test_plugin", Adds(LoudFormatter), raising=False)
    distribution("lmi_test_plugin", {"loud": "sys:lmi_test_plugin"})
    assert load_plugins().formatters.get("loud") is LoudFormatter


def test_broken_entry_point_is_named_with_its_error(distribution: Distribution) -> None:
    distribution("lmi_test_plugin", {"mine": "lmi_test_missing"})
    assert error_of() == (
        "the plugin entry point `mine` (lmi_test_missing) cannot be imported: "
        "ModuleNotFoundError: No module named 'lmi_test_missing'"
    )


def test_two_entry_points_of_one_name(distribution: Distribution, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "lmi_test_first", Adds(LoudFormatter), raising=False)
    monkeypatch.setattr(sys, "lmi_test_second", Adds(), raising=False)
    distribution("lmi_test_plugin", {"mine": "sys:lmi_test_first"})
    distribution("lmi_test_other", {"mine": "sys:lmi_test_second"})
    assert error_of().startswith("the plugin mine cannot be registered: ")
