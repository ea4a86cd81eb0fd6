"""`lmi check` of directories that cannot be served: all that is wrong is told at once, and nothing is started."""

import json
import shutil
from pathlib import Path

import pytest

from tests.conftest import SCRIPTED, ModelDirectory
from tests.lmi_process import lmi

HELLO = Path(__file__).parents[3] / "examples" / "hello"

STUCK = """\
import asyncio
from lmi_core.hookspecs import hookimpl
from lmi_plugins.backends.torch import TorchBackend
from lmi_plugins.torch_engine.client.client import EngineClient


class Stuck(EngineClient):
    async def start(self, former=None):
        await asyncio.Event().wait()


class StuckBackend(TorchBackend):
    name = "stuck"
    aliases = ()
    auto_priority = None
    client_type = Stuck


@hookimpl
def lmi_register_backends(register):
    register(StuckBackend)
"""


@pytest.fixture
def hello(tmp_path: Path) -> Path:
    return Path(shutil.copytree(HELLO, tmp_path / "hello", ignore=shutil.ignore_patterns("*.py", "*.md")))


def configure(directory: Path, **values: object) -> None:
    config = json.loads((directory / "config.json").read_text())
    (directory / "config.json").write_text(json.dumps({**config, **values}))


def test_weights_that_are_not_those_of_the_configuration(hello: Path) -> None:
    configure(hello, num_hidden_layers=8)
    result = lmi("check", hello)
    assert (result.returncode, "option.rolling_batch" in result.stdout) == (2, True)
    assert result.stderr.startswith(f"lmi: {hello}: 18 weights are missing (model.layers.6.input_layernorm.weight, ")
    assert len(result.stderr.splitlines()) == 1


def test_the_server_refuses_the_same_without_a_traceback(hello: Path) -> None:
    configure(hello, num_hidden_layers=8)
    result = lmi("serve", hello, "--port", "0")
    assert result.returncode == 2
    assert "Traceback" not in result.stderr
    assert result.stderr.splitlines()[-1].startswith(f"lmi: {hello}: 18 weights are missing (")


@pytest.mark.parametrize("command", ["check", "serve"])
def test_a_chat_template_that_is_not_jinja(hello: Path, command: str) -> None:
    (hello / "chat_template.jinja").write_text("{% for message in messages %}")
    result = lmi(command, hello, *(["--port", "0"] if command == "serve" else []))
    assert result.returncode == 2
    assert "the chat template is not Jinja: line 1: Unexpected end of template." in result.stderr.splitlines()[-1]


@pytest.mark.parametrize("command", ["check", "serve"])
def test_more_layers_than_any_model_has(hello: Path, command: str) -> None:
    """Building them would take days."""
    configure(hello, num_hidden_layers=10**9)
    result = lmi(command, hello, *(["--port", "0"] if command == "serve" else []))
    assert result.returncode == 2
    assert "config.json: `num_hidden_layers` must be at most 2000. Given: 1000000000" in result.stderr


@pytest.mark.parametrize("command", ["check", "serve"])
def test_a_chat_template_that_never_ends(hello: Path, command: str) -> None:
    (hello / "chat_template.jinja").write_text(
        "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}"
    )
    result = lmi(command, hello, *(["--port", "0"] if command == "serve" else []))
    assert result.returncode == 2
    told = result.stderr.splitlines()[-1]
    assert "the chat template cannot be used: for one short message it takes more than 2 seconds" in told


def test_all_faults_of_options_and_files_are_told_at_once(hello: Path) -> None:
    (hello / "serving.properties").write_text("option.dtype=strange\noption.max_rolling_batch_size=0\n")
    (hello / "tokenizer_config.json").write_text("{")
    (hello / "model.safetensors").write_bytes(b"")
    result = lmi("check", hello)
    assert result.returncode == 2
    told = [line.removeprefix("lmi: ").split(" ")[:2] for line in result.stderr.splitlines()]
    assert told == [
        ["serving.properties:2:", "option.max_rolling_batch_size"],
        ["serving.properties:1:", "option.dtype"],
        [f"{hello}/tokenizer_config.json:", "the"],
        [f"{hello}/model.safetensors:", "the"],
    ]


def test_faults_of_several_models_name_the_model(model_dir: ModelDirectory, tmp_path: Path) -> None:
    right = model_dir({"serving.properties": SCRIPTED})
    wrong = tmp_path / "wrong"
    wrong.mkdir()
    (wrong / "serving.properties").write_text("option.rolling_batch=scripted\nbatch_size=0\n")
    result = lmi("check", f"right={right}", f"wrong={wrong}")
    assert (result.returncode, "model right: " in result.stdout) == (2, True)
    assert result.stderr.startswith("lmi: model wrong: serving.properties:2: batch_size must be ")


@pytest.mark.parametrize("command", ["check", "serve"])
def test_weights_that_are_cut_off(hello: Path, tmp_path: Path, command: str) -> None:
    """The server finds them without its engine, which would import its libraries first."""
    weights = hello / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1])
    (plugins := tmp_path / "plugins").mkdir()
    (plugins / "stuck.py").write_text(STUCK)
    port = ["--port", "0"] if command == "serve" else []
    result = lmi(command, hello, "-o", "option.rolling_batch=stuck", "--plugins-dir", plugins, *port)
    assert result.returncode == 2
    assert result.stderr.splitlines()[-1].startswith(f"lmi: {weights}: the file is cut off, damaged, or not in the ")


@pytest.mark.parametrize("command", ["check", "serve"])
def test_a_damaged_file_in_a_folder_of_models(model_dir: ModelDirectory, tmp_path: Path, command: str) -> None:
    store = model_dir({"serving.properties": SCRIPTED}, "store/good").parent
    model_dir({"serving.properties": SCRIPTED + "batch_size=0\n"}, "store/wrong")
    (store / "damaged.gguf").write_bytes(b"no model")
    result = lmi(command, store, LMI_CACHE=str(tmp_path / "cache"))
    assert (result.returncode, "model good: " in result.stdout) == (2, command == "check")
    damaged, wrong = result.stderr.splitlines()[-2:]
    assert damaged.startswith(f"lmi: {store}/damaged.gguf: this is not a GGUF file, or it is damaged: ")
    assert wrong.startswith("model wrong: serving.properties:2: batch_size must be ")


def test_json(model_dir: ModelDirectory) -> None:
    directory = model_dir({"serving.properties": SCRIPTED + "option.unknown_key=1\n"})
    result = lmi("check", directory, "--json")
    report = json.loads(result.stdout)
    assert (result.returncode, report["faults"]) == (0, [])
    (model,) = report["models"]
    assert (model["name"], model["directory"], model["backend"]) == (directory.name, str(directory), "scripted")
    assert model["options"]["option.rolling_batch"] == {"value": "scripted", "source": "serving.properties:1"}
    assert any("option.unknown_key" in warning for warning in model["warnings"])
    assert {"name": "port", "value": "8080", "source": "default", "effect": "honoured"} in report["server"]["settings"]


def test_json_of_a_directory_with_faults(model_dir: ModelDirectory) -> None:
    result = lmi("check", model_dir({"serving.properties": SCRIPTED + "batch_size=0\n"}), "--json")
    report = json.loads(result.stdout)
    assert (result.returncode, report["models"]) == (2, [])
    assert report["faults"][0].startswith("serving.properties:")
    assert result.stderr.startswith(f"lmi: {report['faults'][0]}")


def test_models_that_take_the_slower_path(tmp_path: Path) -> None:
    from tests.plugins.torch_engine.tiny_models import save_model, save_tokenizer

    save_tokenizer(tmp_path)
    save_model(tmp_path, "trocr")
    note = (
        "TrOCRForCausalLM runs each sequence separately, which is slower with many: it does not support custom "
        "attention functions"
    )
    result = lmi("check", tmp_path)
    assert (result.returncode, " ".join(result.stdout.split()).count(f"note: {note}")) == (0, 1)
    result = lmi("check", tmp_path, "--json", "--strict")
    assert (result.returncode, json.loads(result.stdout)["models"][0]["notes"]) == (0, [note])


def test_a_name_without_a_key_is_a_warning(model_dir: ModelDirectory, tmp_path: Path) -> None:
    (keys := tmp_path / "keys").write_text("ann\n")
    directory = model_dir({"serving.properties": SCRIPTED})
    result = lmi("check", directory, "--json", SERVING_API_KEYS_FILE=str(keys))
    (warning,) = json.loads(result.stdout)["server"]["warnings"]
    assert (result.returncode, warning.startswith(f"api_keys_file {keys}, line 1: the key has fewer")) == (0, True)
    result = lmi("check", directory, "--strict", SERVING_API_KEYS_FILE=str(keys))
    assert (result.returncode, warning in result.stderr) == (2, True)


@pytest.mark.parametrize("command", ["check", "serve"])
@pytest.mark.parametrize(
    ("variable", "value", "option"),
    [
        ("SERVING_LOG_FORMAT", "xml", "--log-format"),
        ("SERVING_DRAIN_TIMEOUT", "-1", "--drain-seconds"),
        ("SERVING_ACCESS_LOG", "perhaps", "--access-log"),
    ],
)
def test_variables_of_options_of_serve(
    model_dir: ModelDirectory, command: str, variable: str, value: str, option: str
) -> None:
    result = lmi(command, model_dir({"serving.properties": SCRIPTED}), **{variable: value})
    assert result.returncode == 2
    assert f"Invalid value for '{option}' (env var: '{variable}'): " in " ".join(result.stderr.split())


def test_code_that_runs(model_dir: ModelDirectory, tmp_path: Path) -> None:
    (plugins := tmp_path / "plugins").mkdir()
    (plugins / "mine.py").write_text("print('loaded')\n")
    directory = model_dir({"model.py": "def handle(inputs):\n    return None\n"})
    printed = lmi("check", directory, "--plugins-dir", str(plugins)).stdout
    assert "  code that runs: model.py, in separate processes\n" in printed
    assert f"  plugins, whose code runs in the server: {plugins / 'mine.py'}\n" in printed
    report = json.loads(lmi("check", directory, "--plugins-dir", str(plugins), "--json").stdout)
    assert report["models"][0]["code_that_runs"] == "model.py, in separate processes"
    assert report["server"]["plugins"] == [str(plugins / "mine.py")]
