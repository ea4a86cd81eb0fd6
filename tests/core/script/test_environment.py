"""requirements.txt with option.enable_venv, from a wheel in the model directory: nothing is downloaded."""

import zipfile
from importlib.metadata import version
from pathlib import Path

import pytest

from lmi_core.configuration.cache import CACHE_VARIABLE
from lmi_core.errors import ConfigurationError
from lmi_core.script.environment import model_environment, requirements_warnings
from tests.conftest import SCRIPTED, ModelDirectory, Serve

ENABLED = SCRIPTED + "option.enable_venv=true\n"
FORMATTER = """\
import tiny_words
from djl_python.output_formatter import output_formatter


@output_formatter
def f(response_data: dict) -> dict:
    return {"greeting": tiny_words.greeting()}
"""
HANDLER = """\
import tiny_words
from djl_python import Output


def handle(inputs):
    return Output().add(tiny_words.greeting())
"""


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path / "cache"))
    return tmp_path / "cache"


def write_wheel(folder: Path, greeting: str) -> None:
    """A package of two modules, the second of which imports the first by its whole name."""
    info = "tiny_words-1.0.dist-info"
    files = {
        "tiny_words/__init__.py": "from tiny_words.words import greeting\n",
        "tiny_words/words.py": f"def greeting():\n    return {greeting!r}\n",
        f"{info}/METADATA": "Metadata-Version: 2.1\nName: tiny-words\nVersion: 1.0\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    with zipfile.ZipFile(folder / "tiny_words-1.0-py3-none-any.whl", "w") as wheel:
        for name, text in files.items():
            wheel.writestr(name, text)
        wheel.writestr(f"{info}/RECORD", "".join(f"{name},,\n" for name in [*files, f"{info}/RECORD"]))
    (folder / "requirements.txt").write_text("--no-index\n./tiny_words-1.0-py3-none-any.whl\n")


@pytest.mark.slow
async def test_each_model_has_an_environment_of_its_own(serve: Serve, model_dir: ModelDirectory) -> None:
    for name in ("one", "two"):
        write_wheel(model_dir({"serving.properties": ENABLED, "model.py": FORMATTER}, f"store/{name}"), f"I am {name}")
    own = {"serving.properties": "option.enable_venv=true\n", "model.py": HANDLER}
    store = model_dir(own, "store/three").parent
    write_wheel(store / "three", "I am three")
    server = await serve(store)
    answers = [await server.post(f"/predictions/{name}", {"inputs": "a"}) for name in ("one", "two")]
    assert [answer.json() for answer in answers] == [{"greeting": "I am one"}, {"greeting": "I am two"}]
    assert (await server.post("/predictions/three", {})).body == b"I am three"


async def test_without_the_option_the_missing_package_is_named(serve: Serve, model_dir: ModelDirectory) -> None:
    directory = model_dir({"serving.properties": SCRIPTED, "model.py": FORMATTER, "requirements.txt": "tiny-words\n"})
    with pytest.raises(ConfigurationError) as raised:
        await serve(directory)
    assert raised.value.message.endswith(
        "The package tiny_words is not installed: set option.enable_venv=true, or run:"
        f" pip install -r {directory / 'requirements.txt'}"
    )


async def test_handler_whose_package_is_missing(serve: Serve, model_dir: ModelDirectory) -> None:
    with pytest.raises(ConfigurationError) as raised:
        await serve(model_dir({"serving.properties": "", "model.py": HANDLER}))
    assert raised.value.message.endswith("The package tiny_words is not installed. Run: pip install tiny_words")


def test_requirements_that_cannot_be_installed(model_dir: ModelDirectory, cache: Path) -> None:
    directory = model_dir({"requirements.txt": "--no-index\nno-such-package\n"})
    with pytest.raises(ConfigurationError) as raised:
        model_environment(directory, enabled=True)
    assert raised.value.message.startswith(
        f"option.enable_venv: {directory / 'requirements.txt'} cannot be installed\n"
    )
    assert "no-such-package" in raised.value.message


@pytest.mark.slow
def test_environment_is_made_once(model_dir: ModelDirectory) -> None:
    directory = model_dir({"requirements.txt": ""})
    first = model_environment(directory, enabled=True)
    assert first is not None
    (first.directory / "mine").touch()
    assert model_environment(directory, enabled=True) == first
    assert (first.directory / "mine").exists()
    assert model_environment(directory, enabled=False) is None


@pytest.mark.parametrize(
    ("lines", "unmet"),
    [
        ("# a comment\nnumpy>=1  # any\n--no-index\ngit+https://example.com/x.git\n\n", None),
        ("numpy==1.0; python_version < '3'", None),
        ("no-such-package>=2", "no-such-package>=2 (not installed)"),
        ("pytest[dev]<1", f"pytest[dev]<1 ({version('pytest')} is installed)"),
        ("a0\nb0\nc0\nd0\ne0\nf0\ng0", ", ".join(f"{name}0 (not installed)" for name in "abcde") + ", and 2 more"),
    ],
)
def test_warning_of_requirements_that_are_not_met(tmp_path: Path, lines: str, unmet: str | None) -> None:
    (tmp_path / "requirements.txt").write_text(lines)
    warning = f"requirements.txt is not installed: {unmet}; option.enable_venv=true installs it, as LMI's containers do"
    script = tmp_path / "model.py"
    assert requirements_warnings(tmp_path, script, enabled=False) == []
    script.touch()
    assert requirements_warnings(tmp_path, script, enabled=False) == ([] if unmet is None else [warning])
    assert requirements_warnings(tmp_path, script, enabled=True) == []


def test_no_warning_of_requirements_without_a_file(tmp_path: Path) -> None:
    (tmp_path / "model.py").touch()
    assert requirements_warnings(tmp_path, tmp_path / "model.py", enabled=False) == []
