"""The devices that a model directory, the command line and registrations ask for."""

from pathlib import Path

import pytest

from lmi_core.configuration.configuration import Setting
from lmi_core.errors import ConfigurationError
from lmi_core.host.devices import parse_devices
from lmi_core.plugins.loading import load_plugins
from lmi_core.script.function.pool import device_id
from lmi_core.script.function.setup import FunctionSetup
from lmi_core.serving.model_plan import ModelPlan, read_plan
from tests.conftest import ModelDirectory

TORCH = "option.rolling_batch=torch\noption.model_id=org/name\n"
HANDLE = "from djl_python import Output\n\ndef handle(inputs):\n    return Output()\n"
BY_COMMAND_LINE = "command line"


def plan_of(directory: Path, devices: str | None = None) -> ModelPlan:
    overrides = [] if devices is None else [Setting("load_on_devices", devices, BY_COMMAND_LINE)]
    return read_plan("model", directory, {}, load_plugins(), overrides=overrides)


def device_of(plan: ModelPlan) -> object:
    return plan.setup.properties.device


def warnings_of(plan: ModelPlan) -> list[str]:
    return [warning for warning in plan.configuration.warnings if "load_on_devices" in warning]


@pytest.mark.parametrize(
    ("text", "devices"),
    [
        ("", ()),
        ("*", ()),
        ("cpu", ("cpu",)),
        ("-1", ("cpu",)),
        ("0;1", ("0", "1")),
        ("GPU1; cuda:01;1", ("1",)),
    ],
)
def test_names(text: str, devices: tuple[str, ...]) -> None:
    assert parse_devices(text) == devices


@pytest.mark.parametrize(
    ("devices", "expected"), [("cpu", "cpu"), ("gpu1", "cuda:1"), ("2;0", "cuda:2"), ("*", "auto"), (None, "auto")]
)
def test_torch_engine_runs_on_the_first(model_dir: ModelDirectory, devices: str | None, expected: str) -> None:
    plan = plan_of(model_dir({"serving.properties": TORCH}), devices)
    assert device_of(plan) == expected
    assert warnings_of(plan) == []


def test_own_device_of_a_directory_counts_unless_the_command_line_names_one(model_dir: ModelDirectory) -> None:
    directory = model_dir({"serving.properties": f"{TORCH}option.device=cuda:3\nload_on_devices=1\n"})
    assert device_of(plan_of(directory)) == "cuda:3"
    assert device_of(plan_of(directory, "cpu")) == "cpu"
    directory = model_dir({"serving.properties": f"{TORCH}load_on_devices=1\n"}, "other")
    assert device_of(plan_of(directory)) == "cuda:1"


def test_backend_without_a_device(model_dir: ModelDirectory) -> None:
    directory = model_dir({"serving.properties": "option.rolling_batch=scripted\nload_on_devices=0\n"})
    assert warnings_of(plan_of(directory)) == [
        "serving.properties:2: load_on_devices=0 has no effect: the environment variable CUDA_VISIBLE_DEVICES selects "
        "the devices of scripted"
    ]
    assert warnings_of(plan_of(model_dir({"serving.properties": "option.rolling_batch=scripted\n"}, "all"), "*")) == []


def test_processes_of_a_model_function_get_them_in_turn(model_dir: ModelDirectory) -> None:
    plan = plan_of(model_dir({"model.py": HANDLE, "serving.properties": "minWorkers=2\n"}), "1;3")
    assert isinstance(plan.setup, FunctionSetup)
    pool = plan.setup.pool
    assert pool.count == (4, 4)
    assert [device_id(number, pool.server.devices) for number in range(4)] == ["1", "3", "1", "3"]
    assert device_id(0, ("cpu",)) == "-1"
    assert warnings_of(plan) == []


def test_unknown_device(model_dir: ModelDirectory) -> None:
    with pytest.raises(ConfigurationError, match=r"load_on_devices must be \*, or cpu, or GPUs such as 0"):
        plan_of(model_dir({"serving.properties": f"{TORCH}load_on_devices=nc1\n"}))
