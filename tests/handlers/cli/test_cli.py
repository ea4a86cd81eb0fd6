"""The `lmi` command as a person runs it."""

import socket
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

from tests.conftest import SCRIPTED, ModelDirectory
from tests.lmi_process import lmi

HELLO = Path(__file__).parents[3] / "examples" / "hello"
MODELS = ("[NAME=]DIR", "-m", "-s", "-f")  # what says which models are meant


def errors(result: subprocess.CompletedProcess[str]) -> str:
    """Return standard error without the log, of which `lmi serve` writes a line before it looks at anything."""
    return "".join(line for line in result.stderr.splitlines(keepends=True) if "INFO    lmi_" not in line)


def test_help_names_the_commands() -> None:
    result = lmi("--help")
    assert all(command in result.stdout for command in ("serve", "check", "plugins", "options"))


def test_help_is_quick_as_it_imports_no_more_than_it_needs() -> None:
    script = (
        "import sys; from lmi_handlers.cli.main import app\n"
        "app(['--help'], standalone_mode=False)\n"
        "print({'aiohttp', 'pydantic', 'torch', 'transformers', 'vllm'} & set(sys.modules))"
    )
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    assert result.stdout.splitlines()[-1] == "set()", result.stderr


def test_help_fits_80_columns_and_keeps_brackets() -> None:
    text = lmi("serve", "--help", COLUMNS="80").stdout
    assert "handlers[grpc]'" in text
    assert max(map(len, text.splitlines())) <= 80


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_shell_completion(shell: str) -> None:
    words = {"COMP_WORDS": "lmi che", "COMP_CWORD": "1", "_TYPER_COMPLETE_ARGS": "lmi che"}
    result = lmi(_LMI_COMPLETE=f"complete_{shell}", _TYPER_COMPLETE_FISH_ACTION="get-args", **words)
    assert "check" in result.stdout


def test_version() -> None:
    assert lmi("--version").stdout == f"lmi-handlers {version('lmi-handlers')}\n"


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("serve", [*MODELS, "--models", "--model-store", "--config-file", "--plugins-dir", "--strict"]),
        ("serve", ["--host", "127.0.0.1", "--port", "8080", "--drain-seconds", "--log-level"]),
        ("check", [*MODELS, "--plugins-dir", "--strict"]),
        ("plugins", ["--plugins-dir"]),
        ("options", ["--plugins-dir"]),
    ],
)
def test_help_of_a_command(command: str, words: list[str]) -> None:
    result = lmi(command, "--help")
    assert result.returncode == 0
    assert [word for word in words if word not in result.stdout] == []


def test_check(model_dir: ModelDirectory) -> None:
    directory = model_dir({"serving.properties": SCRIPTED + "option.tgi_compat=true\n"})
    result = lmi("check", directory, OPTION_PREDICT_TIMEOUT="7")
    assert result.returncode == 0
    rows = [line.split() for line in result.stdout.splitlines()]
    assert ["backend:", "scripted", "(option.rolling_batch=scripted)"] in rows
    assert ["output", "formatter:", "tgi_json;", "tgi_sse", "for", "streams"] in rows
    assert ["option.tgi_compat", "true", "serving.properties:2"] in rows
    assert ["option.predict_timeout", "7", "environment", "OPTION_PREDICT_TIMEOUT"] in rows
    default = ["job_queue_size", "1000", "default"]
    assert default not in rows
    assert rows[-1][1:] == ["options", "have", "their", "default:", "--all", "shows", "them"]
    every = lmi("check", directory, "--all").stdout.splitlines()
    assert default in [line.split() for line in every]


FORMATTERS = """\
from djl_python.input_parser import input_formatter
from djl_python.output_formatter import output_formatter


@output_formatter
def mine(output):
    return output.choices


@input_formatter
def rename(decoded_payload):
    return decoded_payload
"""


def test_check_shows_how_formatters_are_called(model_dir: ModelDirectory) -> None:
    adapter = FORMATTERS.replace("(output)", "(output: dict)")
    files = {"serving.properties": SCRIPTED, "model.py": FORMATTERS, "adapters/french/model.py": adapter}
    lines = [line.strip() for line in lmi("check", model_dir(files)).stdout.splitlines()]
    assert "custom output formatter: mine, called as (response) -> response" in lines
    called = "called as (decoded_payload: dict, tokenizer=None, **kwargs) -> dict"
    assert f"custom input formatter: rename, {called}" in lines
    assert "adapter french: custom output formatter: mine, called as (response_data: dict) -> dict" in lines
    assert (
        "warning: the signature of mine is ambiguous: `output` has no annotation; the function uses "
        "`choices`. It is called as (response) -> response"
    ) in lines


def test_check_of_a_handle_function(model_dir: ModelDirectory) -> None:
    script = "import torch\n\n\ndef handle(inputs):\n    return torch.load('weights')\n"
    result = lmi("check", model_dir({"serving.properties": "option.own_key=7\n", "model.py": script}))
    rows = [line.split() for line in result.stdout.splitlines()]
    assert ["model", "function:", "model.py", "answers", "requests", "itself"] in rows
    assert ["option.own_key", "7", "serving.properties:1"] in rows


@pytest.mark.parametrize("command", ["check", "serve"])
def test_model_py_that_cannot_be_loaded(model_dir: ModelDirectory, command: str) -> None:
    directory = model_dir({"serving.properties": SCRIPTED, "model.py": "import json\n\nraise ValueError('mine')\n"})
    result = lmi(command, directory)
    script = directory.resolve() / "model.py"
    assert result.returncode == 2
    assert errors(result).splitlines() == [
        f"lmi: {directory / 'model.py'} cannot be loaded",
        "Traceback (most recent call last):",
        f'  File "{script}", line 3, in <module>',
        "    raise ValueError('mine')",
        "ValueError: mine",
    ]


@pytest.mark.parametrize(
    ("properties", "message"),
    [
        ("option.entryPoint=serve.py\n", "option.entryPoint=serve.py: "),
        ("option.handler=infer\n", "option.handler=infer: "),
    ],
)
def test_script_that_is_not_there(model_dir: ModelDirectory, properties: str, message: str) -> None:
    result = lmi("check", model_dir({"serving.properties": SCRIPTED + properties, "model.py": "x = 1\n"}))
    assert (result.returncode, result.stderr.startswith(f"lmi: {message}")) == (2, True)


@pytest.mark.parametrize(
    ("properties", "message"),
    [
        ("option.rolling_batch=vlm\n", "there is no backend `vlm`. Did you mean `vllm`? Known: "),
        (
            SCRIPTED + "option.output_formatter=jsonline\n",
            "there is no output formatter `jsonline`. Did you mean `jsonlines`? Known: async_json, ",
        ),
        (
            SCRIPTED + "option.output_formatter=triton\n",
            "there is no output formatter `triton`. Known: async_json, ",
        ),
        (
            SCRIPTED + "job_queue_size=none\n",
            "serving.properties:2: job_queue_size must be an integer greater than 0. Given: none",
        ),
        (
            "option.rolling_batch=disable\noption.tgi_compat=true\n",
            "option.tgi_compat=true needs rolling batch: remove it, or option.rolling_batch=disable",
        ),
        ("option.model_id=s3://b/model\n", "s3://b/model is not an S3 URL: give s3://bucket/folder/"),
        ("option.model_id=./missing\n", "option.model_id=./missing: there is no such folder"),
    ],
)
@pytest.mark.parametrize("command", ["check", "serve"])
def test_wrong_properties(model_dir: ModelDirectory, command: str, properties: str, message: str) -> None:
    result = lmi(command, model_dir({"serving.properties": properties}))
    assert result.returncode == 2
    last = result.stderr.splitlines()[-1]
    assert last.startswith(f"lmi: {message}")
    assert "Traceback" not in result.stderr


UNKNOWN_AND_FOREIGN = SCRIPTED + "option.max_rolling_batch_sise=3\nbatchsize=1\noption.n_positions=512\n"
TOLD = (
    "serving.properties:2: option.max_rolling_batch_sise is not a known key and is ignored; did you mean "
    "option.max_rolling_batch_size?",
    "serving.properties:3: batchsize is not a known key and is ignored; did you mean batch_size?",
    "serving.properties:4: option.n_positions has no effect: it is for AWS Neuron's compiler; this server runs "
    "models on GPUs and CPUs. Given: 512",
)


def test_check_lists_what_is_ignored(model_dir: ModelDirectory) -> None:
    result = lmi("check", model_dir({"serving.properties": UNKNOWN_AND_FOREIGN}))
    assert result.returncode == 0
    for warning in TOLD:
        assert f"  warning: {warning}\n" in result.stdout


@pytest.mark.parametrize("command", ["check", "serve"])
def test_strict_makes_warnings_errors(model_dir: ModelDirectory, command: str) -> None:
    result = lmi(command, "--strict", model_dir({"serving.properties": UNKNOWN_AND_FOREIGN}))
    assert result.returncode == 2
    first, *told = result.stderr.splitlines()[-4:]
    assert first == "lmi: --strict makes all warnings errors:"
    assert [line.partition(": ")[2] for line in told] == list(TOLD)


def test_strict_is_content_without_warnings(model_dir: ModelDirectory) -> None:
    assert lmi("check", "--strict", model_dir({"serving.properties": SCRIPTED})).returncode == 0


def test_all_errors_and_warnings_are_told_together(model_dir: ModelDirectory) -> None:
    properties = SCRIPTED + "job_queue_size=0\noption.predict_timeout=x\noption.scripted_delay=-1\noption.unroll=1\n"
    result = lmi("check", model_dir({"serving.properties": properties}))
    assert result.returncode == 2
    assert [line.partition(" must")[0].partition(" has")[0] for line in result.stderr.splitlines()] == [
        "lmi: serving.properties:2: job_queue_size",
        "serving.properties:3: option.predict_timeout",
        "serving.properties:4: option.scripted_delay",
        "warning: serving.properties:5: option.unroll",
    ]


def test_error_in_a_model_store_names_the_model(model_dir: ModelDirectory) -> None:
    store = model_dir({"serving.properties": SCRIPTED}, "store/good").parent
    model_dir({"serving.properties": SCRIPTED + "job_queue_size=none\n"}, "store/poor")
    result = lmi("check", store)
    message = "serving.properties:2: job_queue_size must be an integer greater than 0. Given: none"
    assert (result.returncode, result.stderr) == (2, f"lmi: model poor: {message}\n")


def test_missing_and_empty_directories(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").touch()
    expected = {
        "missing": "does not exist: give the path of a model directory or of an archive, an s3:// URL, the URL of an"
        " archive, or the id of a model of the Hugging Face hub (org/name)",
        "file": "is a file: give the path of the model directory that contains it",
        "empty": "contains no model: put a serving.properties there (with option.model_id), or the model's own files"
        " (config.json, *.safetensors, tokenizer.json)",
    }
    for name, message in expected.items():
        for command in ("serve", "check"):
            result = lmi(command, tmp_path / name)
            assert (result.returncode, errors(result)) == (2, f"lmi: {tmp_path / name} {message}\n")


@pytest.mark.parametrize("command", ["serve", "check"])
def test_a_path_that_could_be_a_hub_id(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str) -> None:
    (tmp_path / "models" / "hello").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    result = lmi(command, "models/helo")
    assert (result.returncode, errors(result)) == (
        2,
        "lmi: models/helo does not exist in the folder models. Did you mean `models/hello`? To use the model "
        "of the Hugging Face hub with this id, start in a folder that has no subfolder models\n",
    )


def test_an_unreachable_hub(tmp_path: Path) -> None:
    """The status differs from that of a wrong setting, because the next start may succeed."""
    with socket.create_server(("127.0.0.1", 0)) as closing:
        address = f"http://127.0.0.1:{closing.getsockname()[1]}"
    result = lmi("serve", "org/tiny", "--port", "0", HF_ENDPOINT=address, HF_HOME=str(tmp_path))
    assert result.returncode == 1
    assert f"the hub at {address} cannot be reached" in result.stderr.splitlines()[-1]


@pytest.mark.parametrize("command", ["serve", "check"])
def test_unknown_options_of_the_command_line(model_dir: ModelDirectory, command: str) -> None:
    result = lmi(command, model_dir({"serving.properties": SCRIPTED}), "-o", "option.scripted_txt=Hi")
    message = "lmi: command line: option.scripted_txt is not a known key; did you mean option.scripted_text?\n"
    assert (result.returncode, errors(result)) == (2, message)


def test_a_model_directory_without_weights(model_dir: ModelDirectory) -> None:
    result = lmi("serve", model_dir({"serving.properties": "option.rolling_batch=torch\n"}))
    assert result.returncode == 2
    assert result.stderr.endswith("contains no config.json: set option.model_id, or put the model's files there\n")


def test_plugins() -> None:
    rows = [line.split() for line in lmi("plugins").stdout.splitlines()]
    assert ["backend", "torch,", "scheduler,", "hf-accelerate", "lmi_plugins.backends.torch.TorchBackend"] in rows
    assert ["output", "formatter", "sse", "lmi_plugins.formatters.sse.SseFormatter"] in rows
    assert ["handler", "lmi", "lmi_handlers.lmi.handler.LmiHandler"] in rows


def test_plugins_lists_functions(tmp_path: Path) -> None:
    code = (
        "from lmi_core.formatter import output_formatter\nfrom lmi_core.hookspecs import hookimpl\n\n"
        "@output_formatter\ndef mine(response_data): ...\n\n"
        "@hookimpl\ndef lmi_register_formatters(register):\n    register(mine)\n"
    )
    (tmp_path / "plugin.py").write_text(code)
    rows = [line.split() for line in lmi("plugins", "--plugins-dir", tmp_path).stdout.splitlines()]
    assert [row[2:] for row in rows if row[2:3] == ["mine"]] == [["mine", f"{tmp_path / 'plugin.py'}:mine"]]


def test_plugins_directory(tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text("import nothing_of_that_name\n")
    result = lmi("plugins", "--plugins-dir", tmp_path)
    assert result.returncode == 2
    assert result.stderr.startswith(f"lmi: the plugin {tmp_path / 'broken.py'} cannot be imported: ModuleNotFoundError")


@pytest.mark.parametrize(
    ("arguments", "unused"),
    [
        (["check", "DIR"], {"aiohttp", "transformers", "uvloop"}),
        (["check", str(HELLO)], {"aiohttp", "uvloop"}),
        (["plugins"], {"prometheus_client", "transformers", "uvloop"}),
        (["options"], {"aiohttp", "prometheus_client", "transformers", "uvloop"}),
        (
            ["generate", "http://127.0.0.1:1", "Hello"],
            {"aiohttp.web", "lmi_core.plugins", "transformers", "uvloop", "zmq"},
        ),
    ],
)
def test_commands_import_no_more_than_they_need(
    model_dir: ModelDirectory, arguments: list[str], unused: set[str]
) -> None:
    directory = model_dir({"serving.properties": "option.model_id=some/model\n"})
    arguments = [str(directory) if each == "DIR" else each for each in arguments]
    script = (
        "import sys; from lmi_handlers.cli.main import app\n"
        f"app({arguments!r}, standalone_mode=False)\n"
        f"print({unused | {'torch', 'vllm'}!r} & set(sys.modules))"
    )
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    assert result.stdout.splitlines()[-1] == "set()", result.stderr
