"""A plugin author's mistakes, as the commands report them: in a sentence with the plugin, the file and the line."""

import json
from collections.abc import Callable
from pathlib import Path

import aiohttp
import pytest

from tests.conftest import SCRIPTED, ModelDirectory
from tests.lmi_process import lmi, lmi_serve

HANDLER = """\
from lmi import Answer, Handler, Route, hookimpl


class Mine(Handler):
    name = "mine"
    routes = {routes}

    def model_name(self, path_parameters, headers):
        return None

    def parse(self, call, model):
        return Answer(200, "text/plain", b"mine")

    def error(self, error, model, formatter):
        return Answer(500, "text/plain", b"")


@hookimpl
def lmi_register_handlers(register):
    register(Mine)
"""
FORMATTER = """\
from lmi import hookimpl, output_formatter


@output_formatter
{function}
    return ""


{hook}
    register(shout)
"""
SHOUT, HOOK = "def shout(output):", "@hookimpl\ndef lmi_register_formatters(register):"
COMMANDS = pytest.mark.parametrize("command", ["check", "serve", "try"])

Error = Callable[..., str]


@pytest.fixture
def error(model_dir: ModelDirectory) -> Error:
    """The error of a command for a model and these plugins."""

    def run(command: str, *arguments: object, **variables: str) -> str:
        result = lmi(command, model_dir({"serving.properties": SCRIPTED}), *arguments, **variables)
        assert result.returncode == 2
        return result.stderr[result.stderr.index("lmi: ") :]

    return run


@pytest.fixture
def package(tmp_path: Path) -> Callable[[str], str]:
    """`package(code)` installs a plugin whose code is `authored/part.py`, and returns the value of PYTHONPATH."""

    def install(code: str) -> str:
        for name in ("authored", "authored-1.0.dist-info"):
            (tmp_path / name).mkdir()
        (tmp_path / "authored" / "__init__.py").touch()
        (tmp_path / "authored" / "part.py").write_text(code)
        (tmp_path / "authored-1.0.dist-info" / "METADATA").write_text(
            "Metadata-Version: 2.1\nName: authored\nVersion: 1.0\n"
        )
        (tmp_path / "authored-1.0.dist-info" / "entry_points.txt").write_text("[lmi]\nmine = authored.part\n")
        return str(tmp_path)

    return install


@COMMANDS
def test_package_whose_code_raises(error: Error, package: Callable[[str], str], command: str) -> None:
    assert error(command, PYTHONPATH=package("import json\n\njson.loads('')\n")) == (
        "lmi: the plugin entry point `mine` (authored.part) cannot be imported: JSONDecodeError: "
        "Expecting value: line 1 column 1 (char 0) (authored/part.py, line 3)\n"
    )


def test_package_whose_hook_raises(error: Error, package: Callable[[str], str]) -> None:
    code = FORMATTER.format(function=SHOUT, hook=HOOK).replace("register(shout)", "register(whisper)")
    assert error("check", PYTHONPATH=package(code)) == (
        "lmi: a plugin's lmi_register_formatters raised NameError: name 'whisper' is not defined "
        "(authored/part.py, line 11)\n"
    )


@pytest.mark.parametrize(
    ("routes", "fault"),
    [
        ('(Route("/mine"))', "TypeError: 'Route' object is not iterable"),
        ('("/mine",)', "AttributeError: 'str' object has no attribute 'path'"),
    ],
)
@COMMANDS
def test_routes_of_a_wrong_type(error: Error, tmp_path: Path, command: str, routes: str, fault: str) -> None:
    (tmp_path / "mine.py").write_text(HANDLER.format(routes=routes))
    assert error(command, "--plugins-dir", tmp_path) == (
        f"lmi: a plugin's lmi_register_handlers raised {fault} (mine.py, line 20)\n"
    )


@pytest.mark.parametrize("path", ["mine", "/mine/{", "/{model", "/mine/{2}", "/{modèle}"])
def test_routes_with_a_wrong_path(error: Error, tmp_path: Path, path: str) -> None:
    (tmp_path / "mine.py").write_text(HANDLER.format(routes=f'(Route("{path}"),)'))
    assert error("serve", "--plugins-dir", tmp_path) == (
        f"lmi: the handler {tmp_path / 'mine.py'}:Mine has a route with an invalid path: it must start with `/`, and "
        f"have braces only around names, as in `/path/{{model}}`. Given: '{path}'\n"
    )


@pytest.mark.parametrize(
    ("function", "hook", "fault"),
    [
        ("def shout(output, tokens):", HOOK, "the output formatter shout(output, tokens) must take one argument, "),
        ("async def shout(output):", HOOK, "the output formatter shout must not be async"),
        (SHOUT, HOOK.replace("(register)", "(registry)"), "for hook 'lmi_register_formatters'\n"),
        (SHOUT, HOOK.replace("@hookimpl\n", "\n"), "has lmi_register_formatters without @hookimpl"),
    ],
)
@COMMANDS
def test_wrong_signatures(error: Error, tmp_path: Path, command: str, function: str, hook: str, fault: str) -> None:
    (tmp_path / "mine.py").write_text(FORMATTER.format(function=function, hook=hook))
    assert fault in error(command, "--plugins-dir", tmp_path)


async def test_routes_of_a_built_in_handler(model_dir: ModelDirectory, tmp_path: Path) -> None:
    (plugins := tmp_path / "plugins").mkdir()
    routes = '(Route("/invocations"), Route("/predictions/{name}"), Route("/", "GET"), Route("/mine"))'
    (plugins / "mine.py").write_text(HANDLER.format(routes=routes))
    mine = f"the handler `mine` ({plugins / 'mine.py'}:Mine) replaces the handler"
    expected = [
        f"{mine} `pages` (lmi_handlers.pages.handler.PagesHandler) for GET /",
        f"{mine} `ollama` (lmi_handlers.ollama.handler.OllamaHandler) for GET /",
        f"{mine} `lmi` (lmi_handlers.lmi.handler.LmiHandler) for POST /invocations, POST /predictions/{{model}}",
    ]
    arguments = (model_dir({"serving.properties": SCRIPTED}), "--plugins-dir", plugins)
    assert json.loads(lmi("check", *arguments, "--json").stdout)["server"]["notes"] == expected
    printed = lmi("check", *arguments).stdout.split()
    assert [word for word in printed if word in ("`pages`", "`ollama`", "`lmi`")] == ["`pages`", "`ollama`", "`lmi`"]
    async with lmi_serve(*arguments, "--port", 0) as server:
        url = await server.ready()
        assert all(any(line in logged and "WARN" in logged for logged in server.log) for line in expected)
        async with aiohttp.ClientSession(url) as client, client.post("/predictions/model", json={}) as response:
            assert await response.text() == "mine"


def test_built_in_handlers_replace_none(model_dir: ModelDirectory) -> None:
    report = json.loads(lmi("check", model_dir({"serving.properties": SCRIPTED}), "--json").stdout)
    assert report["server"]["notes"] == []


@pytest.mark.parametrize(("given", "meant"), [("wisper", "whisper"), ("shuot", "shout")])
@COMMANDS
def test_misspelt_formatter(model_dir: ModelDirectory, tmp_path: Path, command: str, given: str, meant: str) -> None:
    (plugins := tmp_path / "plugins").mkdir()
    (plugins / "mine.py").write_text(FORMATTER.format(function=SHOUT, hook=HOOK))
    code = "from lmi import output_formatter\n\n\n@output_formatter\ndef whisper(output):\n    return ''\n"
    properties = f"{SCRIPTED}option.output_formatter={given}\n"
    directory = model_dir({"serving.properties": properties, "model.py": code})
    message = lmi(command, directory, "--plugins-dir", plugins).stderr
    assert f"there is no output formatter `{given}`. Did you mean `{meant}`? Known: " in message
    assert " sse, tgi_json, " in message
    assert " whisper. Others come from " in message
