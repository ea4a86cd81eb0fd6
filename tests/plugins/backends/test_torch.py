"""Options and parameters of the torch backend, whose engine has tests of its own."""

from pathlib import Path

import pytest

from lmi_core.backend import BackendSetup
from lmi_core.configuration.configuration import Configuration
from lmi_plugins.backends import torch as module
from lmi_plugins.backends.torch import TorchBackend, TorchProperties
from lmi_plugins.backends.torch_devices import Host
from lmi_plugins.torch_engine.messages.requests import EngineOptions
from tests.conftest import ModelDirectory


@pytest.fixture(autouse=True)
def _host_with_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "this_host", lambda: Host(8, "this host has 8 GPUs", False))


def backend(directory: Path) -> TorchBackend:
    properties = Configuration.read(directory, {}).load(TorchProperties)
    return TorchBackend(BackendSetup(directory, properties, {}, retry_threshold=3))


def test_options_reach_the_engine(model_dir: ModelDirectory) -> None:
    directory = model_dir(
        {
            "serving.properties": "option.dtype=bf16\noption.device=cuda:7\noption.max_model_len=99\n"
            "option.max_rolling_batch_size=7\noption.max_rolling_batch_prefill_tokens=64\n"
            "option.kv_cache_memory=1000000\noption.revision=main\noption.trust_remote_code=True\n"
            "option.max_loras=3\noption.max_cpu_loras=5\noption.max_lora_rank=64\n"
            "option.enable_prefix_caching=false\noption.speculative_draft_model=draft\noption.speculative_length=3\n"
            "option.record_acceptance_rate=true\noption.gpu_memory_utilization=0.5\n",
            "config.json": "{}",
            "adapters/french/adapter_config.json": "{}",
            "adapters/only-code/model.py": "",
            "draft/config.json": "{}",
        }
    )
    assert backend(directory).options == EngineOptions(
        model=str(directory),
        revision="main",
        trust_remote_code=True,
        dtype="bf16",
        device="cuda:7",
        max_batch_size=7,
        max_prefill_tokens=64,
        max_model_len=99,
        kv_cache_memory=1000000,
        gpu_memory_utilization=0.5,
        max_loras=3,
        max_cpu_loras=5,
        max_lora_rank=64,
        adapters={"french": str(directory / "adapters" / "french")},
        enable_prefix_caching=False,
        speculative_draft_model=str(directory / "draft"),
        speculative_length=3,
        record_acceptance_rate=True,
    )


@pytest.mark.parametrize("line", ["load_format=pt", "quantize=awq", "quantization=fp8"])
def test_arguments_of_vllm_that_have_no_effect(model_dir: ModelDirectory, line: str) -> None:
    configuration = Configuration.read(model_dir({"serving.properties": f"option.{line}\n"}), {})
    configuration.load(TorchProperties)
    key = f"option.{line.partition('=')[0]}".replace("quantization", "quantize")
    (warning,) = configuration.warnings
    assert warning.startswith(f"serving.properties:1: {key} has no effect: the torch engine ")


def test_arguments_of_vllm_with_their_defaults_are_nothing_to_explain(model_dir: ModelDirectory) -> None:
    properties = "option.enforce_eager=False\noption.load_format=auto\noption.quantize=\n"
    configuration = Configuration.read(model_dir({"serving.properties": properties}), {})
    configuration.load(TorchProperties)
    configuration.explain_unread({})
    assert configuration.warnings == []


def test_a_draft_model_may_be_one_of_the_hub(model_dir: ModelDirectory) -> None:
    files = {"serving.properties": "option.speculative_draft_model=some/model\n", "config.json": "{}"}
    assert backend(model_dir(files)).options.speculative_draft_model == "some/model"


def test_adapters_are_left_alone_without_enable_lora(model_dir: ModelDirectory) -> None:
    directory = model_dir(
        {
            "serving.properties": "option.enable_lora=false\n",
            "config.json": "{}",
            "adapters/a/adapter_config.json": "{}",
        }
    )
    options = backend(directory).options
    assert (options.enable_lora, options.adapters) == (False, {})


@pytest.mark.parametrize("degree", ["1", "max"])
def test_one_device_is_enough(model_dir: ModelDirectory, degree: str) -> None:
    files = {"serving.properties": f"option.tensor_parallel_degree={degree}\n", "config.json": "{}"}
    assert backend(model_dir(files)).warnings == []


@pytest.mark.parametrize(
    ("lines", "warning"),
    [
        (
            "option.tensor_parallel_degree=2",
            "option.tensor_parallel_degree=2 has no effect: the torch engine runs on one device",
        ),
        (
            "option.tensor_parallel_size=2\noption.pipeline_parallel_size=3",
            "option.tensor_parallel_degree=2 and option.pipeline_parallel_degree=3 has no effect: the torch engine "
            "runs on one device",
        ),
        (
            "option.device_map=balanced",
            "option.device_map=balanced has no effect: the torch engine runs on one device",
        ),
        (
            "option.dtype=int8",
            "option.dtype=int8 has no effect: models are not quantized while loading; the weights keep their own type",
        ),
    ],
)
def test_what_it_does_otherwise_is_warned_of(model_dir: ModelDirectory, lines: str, warning: str) -> None:
    assert backend(model_dir({"serving.properties": lines, "config.json": "{}"})).warnings == [warning]


def test_models_of_images_are_warned_of(model_dir: ModelDirectory) -> None:
    files = {"serving.properties": "", "config.json": '{"vision_config": {}}'}
    (warning,) = backend(model_dir(files)).warnings
    assert warning == "the torch engine serves only the texts of this model: images need option.rolling_batch=vllm"


@pytest.mark.parametrize(
    ("lines", "device"),
    [
        ("option.device_map=auto", "auto"),
        ("option.device_map=cuda:1", "cuda:1"),
        ("option.device_map=cuda:1\noption.device=cpu", "cpu"),
        ("option.device_map=balanced", "auto"),
    ],
)
def test_device_map_that_names_a_device(model_dir: ModelDirectory, lines: str, device: str) -> None:
    assert backend(model_dir({"serving.properties": lines, "config.json": "{}"})).options.device == device


def test_the_folder_of_adapters_may_have_another_name(model_dir: ModelDirectory) -> None:
    files = {"serving.properties": "option.adapters=lora", "config.json": "{}", "lora/a/adapter_config.json": "{}"}
    directory = model_dir(files)
    assert backend(directory).options.adapters == {"a": str(directory / "lora/a")}
