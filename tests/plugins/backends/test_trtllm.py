"""Options of the trtllm backend, whose requests have tests of their own."""

import asyncio
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from lmi_core.backend import BackendSetup
from lmi_core.configuration.configuration import Configuration
from lmi_core.errors import ConfigurationError
from lmi_core.generation.output import GenerationStep
from lmi_core.generation.request import ValidRequest
from lmi_core.generation.tensors import TensorBackend
from lmi_core.plugins.loading import load_plugins
from lmi_plugins.backends.torch_devices import this_host
from lmi_plugins.backends.trtllm import TrtllmBackend
from lmi_plugins.backends.trtllm_properties import TrtllmProperties
from lmi_plugins.trtllm.parameters import TrtllmParameters
from lmi_plugins.trtllm.requests.limits import RequestLimits
from tests.conftest import ModelDirectory


def backend(directory: Path) -> TrtllmBackend:
    configuration = Configuration.read(directory, {})
    properties = configuration.load(TrtllmProperties)
    configuration.explain_unread({})
    return TrtllmBackend(BackendSetup(directory, properties, {}, retry_threshold=3))


def properties(*options: str) -> dict[str, str]:
    return {"serving.properties": "".join(f"option.{option}\n" for option in options), "config.json": "{}"}


@pytest.mark.parametrize("name", ["trtllm", "trt-llm", "tensorrt-llm", "tensorrt_llm", "tensorrtllm"])
def test_names(name: str) -> None:
    assert load_plugins().backends.get(name) is TrtllmBackend
    assert issubclass(TrtllmBackend, TensorBackend)


def test_defaults(model_dir: ModelDirectory) -> None:
    made = backend(model_dir(properties()))
    assert made.limits == RequestLimits(1024, 512, 16384, None)
    assert (made.max_input_length, made.max_output_length) == (1024, 512)
    assert (made.options.max_batch_size, made.options.max_prefill_tokens) == (256, 512)
    assert made.options.enable_prefix_caching


def test_options_reach_the_engine(model_dir: ModelDirectory) -> None:
    made = backend(
        model_dir(
            properties(
                "max_input_len=300",
                "max_output_len=70",
                "max_num_tokens=200",
                "max_beam_width=4",
                "max_num_sequences=9",
                "max_rolling_batch_size=7",
                "enable_kv_cache_reuse=false",
                "kv_cache_free_gpu_mem_fraction=0.5",
                "max_loras=3",
                "max_lora_rank=64",
                "dtype=bf16",
            )
        )
    )
    assert made.limits == RequestLimits(300, 70, 200, 4)
    assert (made.max_input_length, made.max_output_length) == (200, 70)
    options = made.options
    assert (options.max_batch_size, options.max_prefill_tokens, options.dtype) == (9, 200, "bf16")
    assert (options.enable_prefix_caching, options.kv_cache_share) == (False, 0.5)
    assert (options.max_loras, options.max_lora_rank) == (3, 64)


def test_a_directory_as_they_are_found(model_dir: ModelDirectory) -> None:
    """Options without effect are explained unless they have their default values."""
    files = properties(
        "model_id=some/model",
        "tensor_parallel_degree=max",
        "max_rolling_batch_size=128",
        "max_num_tokens=50000",
        "batch_scheduler_policy=max_utilization",
        "tokens_per_block=64",
        "quantize=awq",
    )
    configuration = Configuration.read(model_dir(files), {})
    made = configuration.load(TrtllmProperties)
    configuration.explain_unread({})
    assert (made.max_rolling_batch_size, made.max_num_tokens) == (128, 50000)
    assert configuration.warnings == [
        "serving.properties:7: option.quantize has no effect: the torch engine does not quantize; quantized weights "
        "are loaded as the model's configuration says. Given: awq",
        "serving.properties:6: option.tokens_per_block has no effect: the cache's block size is fixed. Given: 64",
    ]


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ("max_input_len=0", r"option\.max_input_len must be an integer greater than 0\. Given: 0"),
        ("kv_cache_free_gpu_mem_fraction=1.5", r"option\.kv_cache_free_gpu_mem_fraction must be a number"),
    ],
)
def test_what_is_refused(model_dir: ModelDirectory, option: str, message: str) -> None:
    configuration = Configuration.read(model_dir(properties(option)), {})
    configuration.load(TrtllmProperties)
    with pytest.raises(ConfigurationError, match=message):
        configuration.raise_errors()


def test_more_devices_than_one_are_warned_of(model_dir: ModelDirectory) -> None:
    files = properties("tensor_parallel_degree=4") | {"config.json": "{}"}
    made = backend(model_dir(files))
    warning = "option.tensor_parallel_degree=4 has no effect: the torch engine runs on one device"
    if this_host().gpus == 0:
        assert (made.warnings, [each.option for each in made.substitutions]) == ([], ["option.tensor_parallel_degree"])
    else:
        assert (made.warnings, made.substitutions) == ([warning], [])


async def test_requests_are_stopped_by_their_own_key_alone(
    model_dir: ModelDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = backend(model_dir(properties()))

    async def generate(*_: object) -> AsyncGenerator[GenerationStep, None]:
        while True:
            yield GenerationStep([])
            await asyncio.sleep(0)

    monkeypatch.setattr(made.engine, "generate", generate)

    def request(key: str | None, *, stop: bool = False) -> ValidRequest:
        return ValidRequest("job", "", [], TrtllmParameters(stop=stop, n=2), key=key)

    running = {key: made.generate(request(key)) for key in ("ann", "bob", None)}
    for steps in running.values():
        await anext(steps)
    for key in ("bob", None):
        assert [(step.finish_reason, step.sequence_index) async for step in made.generate(request(key, stop=True))] == [
            ("abort", 0),
            ("abort", 1),
        ]
        assert [step.finish_reason async for step in running[key]][-2:] == ["abort", "abort"]
    assert (await anext(running["ann"])).finish_reason is None
    await running["ann"].aclose()
    assert not made._running
