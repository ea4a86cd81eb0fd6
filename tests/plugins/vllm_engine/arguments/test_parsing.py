"""Options as engine arguments of vLLM's."""

import argparse
from pathlib import Path
from typing import Any

import pytest

from lmi_core.errors import ConfigurationError
from lmi_core.plugins.loading import load_plugins
from lmi_core.serving.model_plan import read_plan
from lmi_plugins.backends import vllm as vllm_backend
from lmi_plugins.backends.vllm import VllmBackend
from lmi_plugins.vllm_engine import library
from lmi_plugins.vllm_engine.arguments.parsing import argument_names, engine_arguments, engine_parser
from tests.conftest import ModelDirectory

PROPERTIES = "option.rolling_batch=vllm\n"


@pytest.fixture
def arguments(model_dir: ModelDirectory) -> Any:
    """Return vLLM's engine arguments for the lines of a `serving.properties`."""
    made = 0

    def read(*lines: str, files: dict[str, str] | None = None) -> Any:
        nonlocal made
        made += 1
        properties = {"serving.properties": PROPERTIES + "\n".join(lines), "config.json": "{}"}
        directory = model_dir(properties | (files or {}), name=f"model{made}")
        setup = read_plan("model", directory, {}, load_plugins()).setup
        return engine_arguments(VllmBackend(setup).arguments)

    return read


@pytest.fixture
def eight_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vllm_backend, "is_cpu_build", lambda: False)
    monkeypatch.setattr(vllm_backend, "visible_gpus", lambda: 8)


def test_defaults(arguments: Any) -> None:
    given = arguments()
    assert Path(given.model).name == "model1"
    assert (given.dtype, given.max_num_seqs, given.tensor_parallel_size) == ("auto", 256, 1)
    assert (given.max_num_batched_tokens, given.max_model_len, given.quantization) == (None, None, None)
    assert (given.enable_lora, given.speculative_config, given.trust_remote_code) == (None, None, False)


@pytest.mark.parametrize(
    ("line", "name", "value"),
    [
        ("model_id=some/model", "model", "some/model"),
        ("revision=v2", "revision", "v2"),
        ("trust_remote_code=True", "trust_remote_code", True),
        ("dtype=fp32", "dtype", "float32"),
        ("dtype=fp16", "dtype", "float16"),
        ("dtype=bf16", "dtype", "bfloat16"),
        ("dtype=half", "dtype", "half"),
        ("max_rolling_batch_size=7", "max_num_seqs", 7),
        ("max_num_seqs=7", "max_num_seqs", 7),
        ("max_rolling_batch_prefill_tokens=512", "max_num_batched_tokens", 512),
        ("max_num_batched_tokens=512", "max_num_batched_tokens", 512),
        ("tensor_parallel_degree=4", "tensor_parallel_size", 4),
        ("tensor_parallel_size=4", "tensor_parallel_size", 4),
        ("quantize=awq", "quantization", "awq"),
        ("quantization=fp8", "quantization", "fp8"),
        ("max_model_len=99", "max_model_len", 99),
        ("enforce_eager=true", "enforce_eager", True),
        ("enforce_eager=false", "enforce_eager", False),
        ("gpu_memory_utilization=0.5", "gpu_memory_utilization", 0.5),
        ("load_format=dummy", "load_format", "dummy"),
        ("enable_prefix_caching=False", "enable_prefix_caching", False),
        ("disable_log_stats=false", "disable_log_stats", False),
        ("seed=3", "seed", 3),
        ("block_size=32", "block_size", 32),
        ('hf_overrides={"rope_theta": 5}', "hf_overrides", {"rope_theta": 5}),
        ('limit_mm_per_prompt={"image": 2}', "limit_mm_per_prompt", {"image": 2}),
        ("cudagraph_capture_sizes=1,2", "cudagraph_capture_sizes", [1, 2]),
        ("cudagraph_capture_sizes=[4, 8]", "cudagraph_capture_sizes", [4, 8]),
        ("max_logprobs=5", "max_logprobs", 5),
    ],
)
@pytest.mark.usefixtures("eight_gpus")
def test_option(arguments: Any, line: str, name: str, value: object) -> None:
    assert getattr(arguments(f"option.{line}"), name) == value


def test_json_objects_reach_what_they_configure(arguments: Any) -> None:
    given = arguments(
        'option.compilation_config={"mode": 0}',
        'option.speculative_config={"method": "ngram", "num_speculative_tokens": 2, "prompt_lookup_max": 3}',
        'option.structured_outputs_config={"backend": "xgrammar"}',
    )
    assert given.compilation_config.mode == 0
    assert given.speculative_config["num_speculative_tokens"] == 2
    assert given.structured_outputs_config.backend == "xgrammar"
    assert not given.logits_processors  # which vLLM does not take with it


def test_max_is_every_device(arguments: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(library.current_platform, "device_count", lambda: 3)
    assert arguments("option.tensor_parallel_degree=max").tensor_parallel_size == 3
    assert engine_arguments({"tensor_parallel_size": "max"}, [1, 2]).tensor_parallel_size == 2


def test_gpus_of_an_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    """All that there are need no numbers, which vLLM cannot find for parts of a GPU."""
    monkeypatch.setattr(library.current_platform, "device_count", lambda: 2)
    assert [engine_arguments({}, gpus).device_ids for gpus in ([], [0], [1], [0, 1])] == [None, [0], [1], None]


def test_adapters_of_the_directory_turn_lora_on(arguments: Any) -> None:
    files = {"adapters/french/adapter_config.json": "{}"}
    given = arguments("option.max_loras=3", "option.max_cpu_loras=5", "option.max_lora_rank=64", files=files)
    assert (given.enable_lora, given.max_loras, given.max_cpu_loras, given.max_lora_rank) == (True, 3, 5, 64)
    assert arguments("option.enable_lora=true").enable_lora is True
    assert arguments("option.enable_lora=false", files=files).enable_lora is None


def test_a_draft_model(arguments: Any) -> None:
    lines = ("option.speculative_draft_model=draft", "option.speculative_length=3", "option.draft_model_tp_size=1")
    config = arguments(*lines, files={"draft/config.json": "{}"}).speculative_config
    assert Path(config.pop("model")).parts[-2:] == ("model1", "draft")
    assert config == {"num_speculative_tokens": 3, "draft_tensor_parallel_size": 1}
    assert arguments("option.speculative_draft_model=some/model").speculative_config["model"] == "some/model"
    with pytest.raises(ConfigurationError, match=r"option\.speculative_config cannot be used together"):
        arguments(*lines, 'option.speculative_config={"method": "ngram"}')


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("option.enforce_eager=perhaps", "option.enforce_eager must be true or false. Given: perhaps"),
        ("option.seed=many", "option.seed: "),
        ("option.compilation_config={broken", "option.compilation_config: "),
        ("option.block_size=[1", "option.block_size: "),
        ("option.cudagraph_capture_sizes=[1", "option.cudagraph_capture_sizes must be a JSON array"),
        ("option.dtype=fp17", "option.dtype must be one of"),
        ("option.tensor_parallel_degree=0", "option.tensor_parallel_degree must be"),
        ("option.max_rolling_batch_size=0", "option.max_rolling_batch_size must be"),
        ("option.kv_cache_dtype=fp17", "option.kv_cache_dtype: "),
        ("option.device_ids=[1]", "option.device_ids: the devices of a model are chosen by load_on_devices"),
    ],
)
def test_a_wrong_option_is_named(arguments: Any, line: str, message: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        arguments(line)
    assert message in caught.value.message


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("option.enforce_eagre=true", "option.enforce_eagre is not a known key and is ignored; did you mean"),
        ("option.gpu_memory_utilisation=1", "did you mean option.gpu_memory_utilization?"),
        ("option.load_format_=x", "did you mean option.load_format?"),
        ("option.model=other", "option.model is not a known key and is ignored; did you mean"),
    ],
)
def test_an_unknown_option_is_warned_of(model_dir: ModelDirectory, line: str, message: str) -> None:
    directory = model_dir({"serving.properties": PROPERTIES + line, "config.json": "{}"})
    (warning,) = read_plan("model", directory, {}, load_plugins()).warnings
    assert message in warning


@pytest.mark.usefixtures("eight_gpus")
def test_the_environment_passes_too(model_dir: ModelDirectory) -> None:
    directory = model_dir({"serving.properties": PROPERTIES, "config.json": "{}"})
    plan = read_plan(
        "model", directory, {"OPTION_ENFORCE_EAGER": "true", "TENSOR_PARALLEL_DEGREE": "2"}, load_plugins()
    )
    given = engine_arguments(VllmBackend(plan.setup).arguments)
    assert (given.enforce_eager, given.tensor_parallel_size) == (True, 2)


def test_every_argument_is_declared() -> None:
    """Fails when vLLM adds arguments in a way that is not seen."""
    assert vars(engine_parser().parse_args([])).keys() <= argument_names()


@pytest.mark.parametrize("words", [["--seed=many"], ["--no-such-argument"], ["--dtype"]])
def test_a_wrong_argument_raises(words: list[str]) -> None:
    with pytest.raises(argparse.ArgumentError):
        engine_parser().parse_args(words)
