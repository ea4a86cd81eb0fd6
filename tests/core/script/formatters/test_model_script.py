"""Loading model.py: what is found in it, and what is said when it is broken."""

from pathlib import Path

import pytest

from lmi_core.configuration.properties import RequestProperties
from lmi_core.errors import ConfigurationError
from lmi_core.script.formatters.model_code import choose, load_code
from lmi_core.script.formatters.model_script import load_script
from lmi_core.script.formatters.output_formatters import FormatterFunction

MARKED = "from djl_python.output_formatter import output_formatter\n\n\n@output_formatter\n"


def write(folder: Path, code: str) -> Path:
    path = folder / "model.py"
    path.write_text(code)
    return path


@pytest.mark.parametrize(
    ("code", "own_lines", "error"),
    [
        (
            "import json\nvalue = 1 / 0\n",
            ["line 2, in <module>", "value = 1 / 0"],
            "ZeroDivisionError: division by zero",
        ),
        ("def f(:\n    pass\n", ["line 1", "def f(:"], "SyntaxError: invalid syntax"),
        (MARKED, ["line 4"], "SyntaxError"),
        ("import helper\n", ["model.py", "helper.py", "line 1, in <module>"], "KeyError: 'a'"),
        ("import sys\n\nsys.exit(1)\n", ["line 3, in <module>", "sys.exit(1)"], "SystemExit: 1"),
        (
            "import json\n\njson.loads('{')\n",
            ["line 3, in <module>", "json.loads('{')"],
            "json.decoder.JSONDecodeError: Expecting property name",
        ),
        (
            MARKED.replace("@output_formatter\n", "output_formatter('f')\n"),
            [],
            "AttributeError: 'str' object has no attribute 'lmi_output_formatter'",
        ),
    ],
)
def test_script_that_cannot_be_loaded(tmp_path: Path, code: str, own_lines: list[str], error: str) -> None:
    (tmp_path / "helper.py").write_text("{}['a']\n")
    with pytest.raises(ConfigurationError) as raised:
        load_script(write(tmp_path, code))
    message = raised.value.message
    assert message.startswith(f"{tmp_path / 'model.py'} cannot be loaded\n")
    assert [line for line in own_lines if line not in message] == []
    assert error in message
    assert not [line for line in message.splitlines() if "File" in line and str(tmp_path) not in line]


@pytest.mark.parametrize(
    ("code", "message"),
    [
        (f"{MARKED}def f(a, b):\n    pass\n", "the output formatter f(a, b) must take one argument"),
        (f"{MARKED}class F:\n    pass\n", "the output formatter F is a class, so it must extend OutputFormatter"),
        (
            "from lmi_core.formatter import OutputFormatter, output_formatter\n\n"
            "@output_formatter\nclass F(OutputFormatter):\n    def format(self, output):\n        return b''\n",
            "the output formatter F lacks error",
        ),
        (
            "from lmi_core.formatter import OutputFormatter, output_formatter\n\n"
            "@output_formatter\nclass F(OutputFormatter):\n    def format(self, output):\n        return b''\n"
            "    def error(self, error):\n        return b''\n",
            "the output formatter F must have a content_type",
        ),
        (
            "from lmi_core.formatter import output_formatter\n\n"
            "@output_formatter(name='same')\ndef f(response_data): ...\n\n"
            "@output_formatter(name='same')\ndef g(response_data): ...\n",
            "two output formatters are named same",
        ),
        (
            "from djl_python.input_parser import input_formatter\n\n@input_formatter\ndef f(payload, rolling): ...\n",
            "the input formatter f has an unknown argument `rolling`. Available: tokenizer, configs, properties, "
            "request",
        ),
    ],
)
def test_formatter_of_no_contract(tmp_path: Path, code: str, message: str) -> None:
    with pytest.raises(ConfigurationError) as raised:
        load_script(write(tmp_path, code))
    assert raised.value.message.startswith(f"{tmp_path / 'model.py'}: {message}")


def test_decorators_count_before_the_name_of_old(tmp_path: Path) -> None:
    code = f"{MARKED}def mine(response_data): ...\n\n\ndef custom_output_formatter(request_output): ...\n"
    assert list(load_script(write(tmp_path, code)).outputs) == ["mine"]


def test_formatter_that_is_imported(tmp_path: Path) -> None:
    (tmp_path / "formatters.py").write_text(f"{MARKED}def mine(response_data): ...\n")
    script = load_script(write(tmp_path, "from formatters import mine\nother_name = mine\n"))
    assert list(script.outputs) == ["mine"]


def test_choice_among_several_is_told(tmp_path: Path) -> None:
    code = f"{MARKED}def zeta(response_data): ...\n\n\n@output_formatter\ndef alpha(output): ...\n"
    script = load_script(write(tmp_path, code))
    chosen = choose(script, None, {})
    assert isinstance(chosen.output, FormatterFunction)
    assert (chosen.output.name, chosen.output_name) == ("alpha", "alpha")
    several, ambiguous = chosen.warnings
    assert several == "there are 2 output formatters (alpha, zeta): alpha is used, the first by name"
    assert ambiguous.startswith("the signature of alpha is ambiguous: `output` has no annotation")
    assert ambiguous.endswith("It is called as (request_output: TextGenerationOutput) -> str")
    named = choose(script, "zeta", {})
    assert (named.output_name, named.warnings) == ("zeta", ())


def test_functions_without_a_decorator_are_told(tmp_path: Path) -> None:
    write(tmp_path, "def shout(output):\n    return output.delta.upper()\n")
    assert load_code(tmp_path, RequestProperties(), {}, tmp_path / "adapters").warnings() == [
        "model.py has no effect: none of its functions is decorated with @output_formatter or @input_formatter from "
        "`lmi`"
    ]
    write(tmp_path, f"{MARKED}def shout(response_data): ...\n")
    assert load_code(tmp_path, RequestProperties(), {}, tmp_path / "adapters").warnings() == []


def test_name_that_a_plugin_has_too(tmp_path: Path) -> None:
    script = load_script(write(tmp_path, f"{MARKED}def mine(response_data): ...\n"))
    mine = script.outputs["mine"]
    with pytest.raises(ConfigurationError, match=r"model\.py and a plugin both define the output formatter mine"):
        choose(script, None, {"mine": mine})
