"""Model directories as they are found with DJLServing 0.27 and newer, on a host with GPUs: what becomes of each."""

import json
import os

import pytest

from lmi_core.configuration.configuration import Configuration
from lmi_core.configuration.properties import RequestProperties, ServerProperties
from lmi_core.errors import ConfigurationError
from lmi_core.plugins.loading import Plugins, load_plugins
from lmi_core.serving.backend_choice import foreign_keys
from lmi_core.serving.model import Model
from lmi_core.serving.model_plan import read_plan
from lmi_plugins.backends import torch as torch_backend
from lmi_plugins.backends import vllm
from lmi_plugins.backends import vllm as vllm_backend
from lmi_plugins.backends.torch_devices import Host
from lmi_plugins.vllm_engine import devices
from lmi_plugins.vllm_engine.arguments.parsing import engine_arguments
from lmi_plugins.vllm_engine.library import current_platform
from tests.conftest import ModelDirectory
from tools.docs.djl_names import DJL_KEYS

GPUS = 8
LMCACHE = json.dumps({"kv_connector": "LMCacheConnectorV1", "kv_role": "kv_both"})
LORA = """\
option.model_id=org/model
option.tensor_parallel_degree=max
option.enable_lora=true
option.max_loras=2
option.max_lora_rank=64
option.long_lora_scaling_factors=4.0
option.adapters=adapters
option.gpu_memory_utilization=0.8
"""

# Each kind of directory once: which keys come together, not which model they name. `*` is any backend.
SERVED: list[tuple[str, str, tuple[str, ...]]] = [
    # engine=Python, option.rolling_batch=vllm
    ("vllm", "option.task=text-generation\noption.dtype=fp16\noption.tensor_parallel_degree=4", ()),
    ("vllm", "option.quantize=awq\noption.tensor_parallel_degree=4", ()),
    ("vllm", "option.task=text-embedding\noption.normalize=false", ()),
    ("trtllm", "option.normalize=false", ()),
    (
        "disable",
        "engine=Python\noption.task=text-embedding\noption.entryPoint=djl_python.lmi_vllm.vllm_async_service\n"
        "option.async_mode=true",
        (),
    ),
    ("vllm", "option.quantize=fp8\noption.max_rolling_batch_size=4\noption.fp8_scheme=FP8_DYNAMIC", ("fp8_scheme",)),
    ("vllm", "option.quantize=fp8\noption.fp8_activation_scheme=dynamic", ("fp8_activation_scheme",)),
    ("vllm", "option.quantize=marlin\noption.tensor_parallel_degree=4", ("quantize",)),
    ("vllm", "option.quantize=int4", ("quantize",)),
    ("vllm", "option.trust_remote_code=True\noption.tensor_parallel_degree=8\noption.max_rolling_batch_size=32", ()),
    ("vllm", "option.enable_chunked_prefill=true\noption.tensor_parallel_degree=4", ()),
    (
        "vllm",
        "option.speculative_model=org/medusa\noption.num_speculative_tokens=4\noption.use_v2_block_manager=True",
        ("use_v2_block_manager",),
    ),
    ("vllm", 'option.speculative_config={"method":"eagle","model":"org/eagle","num_speculative_tokens":4}', ()),
    ("vllm", LORA, ("long_lora_scaling_factors",)),
    ("vllm", LORA + "option.quantize=gptq\noption.lora_dtype=float16\noption.max_cpu_loras=8", ("long_lora",)),
    ("vllm", LORA + "add_output_formatter=True", ("long_lora", "add_output_formatter")),
    ("vllm", "option.limit_mm_per_prompt=image=4\noption.max_model_len=8192", ()),
    ("vllm", 'option.limit_mm_per_prompt={"image": 4, "video": 0}\noption.tokenizer_mode=mistral', ()),
    ("vllm", "option.entryPoint=djl_python.huggingface\noption.tokenizer_mode=mistral", ()),
    ("vllm", "option.enforce_eager=True\noption.max_model_len=50\noption.max_rolling_batch_size=1", ()),
    ("vllm", "option.load_format=dummy\noption.max_new_tokens=100\nload_on_devices=0", ("max_new_tokens", "load_on")),
    ("vllm", "option.enable_prefix_caching=False\ngpu.maxWorkers=1", ()),
    ("vllm", f"option.kv_transfer_config={LMCACHE}\noption.lmcache_config_file=lmcache.yaml", ()),
    ("vllm", "option.load_format=sagemaker_fast_model_loader\noption.tensor_parallel_degree=2", ("load_format",)),
    ("vllm", "option.awq_block_size=256\noption.tensor_parallel_degree=4", ("awq_block_size",)),
    (
        "vllm",
        "option.n_positions=1024\noption.model_loader=vllm\noption.model_loading_timeout=1200",
        ("n_pos", "loader"),
    ),
    ("vllm", "option.gpu_memory_utilization=0.9\noption.max_rolling_batch_size=512", ()),
    ("vllm", "option.tensor_parallel_degree=2\noption.pipeline_parallel_degree=2", ()),
    ("vllm", "option.tensor_parallel_degree=-1", ()),
    # engine=MPI, option.rolling_batch=lmi-dist
    (
        "lmi-dist",
        "option.tensor_parallel_degree=1\noption.max_rolling_batch_size=256\noption.mpi_mode=True",
        ("mpi_mode",),
    ),
    ("lmi-dist", "option.speculative_draft_model=org/draft\noption.gpu_memory_utilization=0.8", ()),
    ("lmi-dist", "option.tensor_parallel_degree=2\noption.pipeline_parallel_degree=2", ()),
    ("lmi-dist", "option.quantize=gptq\noption.dtype=int8", ("dtype",)),
    ("lmi-dist", "option.quantize=awq\noption.device_map=auto\noption.tensor_parallel_degree=4", ()),
    ("lmi-dist", LORA, ("long_lora_scaling_factors",)),
    ("lmi-dist", "option.cpu_offload_gb_per_gpu=4\noption.disable_sliding_window=true", ()),
    # option.rolling_batch=scheduler: transformers
    ("scheduler", "option.max_rolling_batch_size=4\nload_on_devices=0", ()),
    ("scheduler", "option.max_rolling_batch_size=4\nload_on_devices=0;1", ()),
    ("scheduler", "option.max_rolling_batch_size=4\nload_on_device=0", ("load_on_device",)),
    ("scheduler", "option.tensor_parallel_degree=4\noption.max_rolling_batch_size=4", ("one device",)),
    ("hf-accelerate", "option.device_map=cuda:1\noption.low_cpu_mem_usage=true", ("low_cpu_mem_usage",)),
    # option.entryPoint=djl_python.huggingface, option.rolling_batch=disable
    ("disable", "option.entryPoint=djl_python.huggingface\noption.device_map=auto\noption.predict_timeout=240", ()),
    ("disable", "option.load_in_8bit=TRUE\noption.device_map=auto\noption.tensor_parallel_degree=4", ("load_in_8bit",)),
    ("disable", "option.enable_streaming=True\ngpu.maxWorkers=1\noption.dtype=fp16", ()),
    ("disable", "option.enable_streaming=huggingface\nbatch_size=4\nmax_batch_delay=50", ()),
    ("disable", "option.async_mode=true\noption.entryPoint=djl_python.lmi_vllm.vllm_async_service", ()),
    ("disable", "option.async_mode=True\noption.entryPoint=djl_python.lmi_trtllm.trtllm_async_service", ()),
    # option.rolling_batch=trtllm
    ("trtllm", "option.quantize=smoothquant\noption.smoothquant_per_token=True", ("quantize", "smoothquant_per_token")),
    ("trtllm", "option.tensor_parallel_degree=8\noption.use_custom_all_reduce=True", ("one device", "all_reduce")),
    ("trtllm", "option.dtype=bf16\noption.batch_scheduler_policy=guaranteed_no_evict", ("batch_scheduler_policy",)),
    ("trtllm", "option.quantize=fp8\nmodel_loading_timeout=3600", ("quantize", "model_loading_timeout")),
    ("tensorrtllm", "option.max_draft_len=20\noption.max_input_len=256\noption.max_output_len=256", ()),
    # TensorRT-LLM's keys where the container chooses
    ("auto", "option.max_input_len=256\noption.max_output_len=256", ("max_input_len", "max_output_len")),
    ("auto", "option.max_draft_len=20", ("max_draft_len",)),
    ("auto", "option.baichuan_model_version=v2_13b", ("baichuan_model_version",)),
    ("auto", "option.smoothquant_per_channel=True\noption.quantize=smoothquant", ("smoothquant", "quantize")),
    ("", "option.gpt_model_version=santacoder\noption.trust_remote_code=True", ("gpt_model_version",)),
    ("", "option.chatglm_model_version=chatglm3\noption.tensor_parallel_degree=4", ("chatglm_model_version",)),
    # What is left of older ones
    (
        "deepspeed",
        "engine=DeepSpeed\noption.task=text-generation\noption.parallel_loading=true",
        ("engine", "parallel"),
    ),
    ("", "batch_size=4\noption.dtype=fp16", ()),
    ("", "option.batch_size=4", ("option.batch_size is read as batch_size",)),
    # engines that need no Python, for embedding models
    ("", "engine=Rust\noption.task=text_embedding", ("engine has no effect",)),
    ("", "engine=Rust\nbatch_size=32", ("engine has no effect",)),
    ("", "engine=OnnxRuntime\noption.task=text-embedding\noption.normalize=false", ("engine has no effect",)),
    ("", "max_dynamic_batch_size=4\nminWorkers=0", ()),
    (
        "",
        "option.tensor_parallel_degree=16",
        ("option.tensor_parallel_degree=16: this host has 8 GPUs; the degree is 8",),
    ),
]

OTHER_PRODUCTS = [
    ("option.entryPoint=djl_python.transformers_neuronx\noption.n_positions=512", "AWS Inferentia and Trainium"),
    ("engine=PyTorch", "its embedding models need option.task=text-embedding"),
    ("engine=TensorFlow", "DJLServing's other engines are for kinds of models"),
    ("option.task=fill-mask", "option.task must be text-generation, text-embedding or reranking"),
]


@pytest.fixture(scope="module")
def plugins() -> Plugins:
    return load_plugins()


@pytest.fixture(autouse=True)
def _host_with_gpus(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    monkeypatch.setattr(devices, "GPU_DEVICES", [tmp_path_factory.getbasetemp()])
    monkeypatch.setattr(vllm_backend, "is_cpu_build", lambda: False)
    monkeypatch.setattr(vllm_backend, "visible_gpus", lambda: GPUS)
    monkeypatch.setattr(torch_backend, "this_host", lambda: Host(GPUS, f"this host has {GPUS} GPUs", False))


def properties(rolling_batch: str, text: str) -> str:
    lines = [text] if "option.model_id" in text else ["option.model_id=org/model", text]
    return "\n".join([*lines, *([f"option.rolling_batch={rolling_batch}"] if rolling_batch else [])])


@pytest.mark.parametrize(("rolling_batch", "text", "told"), SERVED)
def test_served(
    model_dir: ModelDirectory, plugins: Plugins, rolling_batch: str, text: str, told: tuple[str, ...]
) -> None:
    """Every warning is one that is expected, and every one that is expected is there."""
    directory = model_dir({"serving.properties": properties(rolling_batch, text), "lmcache.yaml": ""})
    model = Model(read_plan("model", directory, {}, plugins), plugins.formatters)
    assert all(any(words in warning for words in told) for warning in model.warnings), model.warnings
    assert all(any(words in warning for warning in model.warnings) for words in told), model.warnings


@pytest.mark.parametrize(("text", "message"), OTHER_PRODUCTS)
def test_other_products_are_refused_by_name(
    model_dir: ModelDirectory, plugins: Plugins, text: str, message: str
) -> None:
    with pytest.raises(ConfigurationError, match=message):
        read_plan("model", model_dir({"serving.properties": properties("", text)}), {}, plugins)


def test_batch_size_alone_means_dynamic_batches(model_dir: ModelDirectory, plugins: Plugins) -> None:
    plan = read_plan("model", model_dir({"serving.properties": properties("", "batch_size=4")}), {}, plugins)
    assert plan.options.dynamic_batching
    assert ("option.rolling_batch", "disable", "batch_size=4") in plan.configuration.effective()


def test_batch_size_beside_a_rolling_batch_has_no_effect(model_dir: ModelDirectory, plugins: Plugins) -> None:
    plan = read_plan("model", model_dir({"serving.properties": properties("vllm", "batch_size=4")}), {}, plugins)
    assert not plan.options.dynamic_batching
    (warning,) = plan.warnings
    assert warning.startswith("batch_size=4 has no effect: ")


def test_containers_short_variables(model_dir: ModelDirectory, plugins: Plugins) -> None:
    environment = {
        "HF_MODEL_ID": "org/model",
        "SM_NUM_GPUS": "4",
        "HF_MODEL_QUANTIZE": "awq",
        "MAX_BATCH_PREFILL_TOKENS": "4096",
        "CUDA_MEMORY_FRACTION": "0.7",
        "PREDICT_TIMEOUT": "60",
        "MODEL_LOADING_TIMEOUT": "900",
        "PIPELINE_PARALLEL_DEGREE": "2",
    }
    plan = read_plan("model", model_dir({"serving.properties": ""}), environment, plugins)
    model = Model(plan, plugins.formatters)
    assert model.warnings == []
    backend = model.backend
    assert isinstance(backend, vllm_backend.VllmBackend)
    expected = {
        "model": "org/model",
        "tensor_parallel_size": "4",
        "pipeline_parallel_size": "2",
        "quantization": "awq",
        "max_num_batched_tokens": "4096",
        "gpu_memory_utilization": "0.7",
        "max_num_seqs": "256",
    }
    assert backend.arguments.items() >= expected.items()
    assert (plan.options.predict_timeout, plan.options.model_loading_timeout) == (60, 900)


@pytest.mark.parametrize(
    ("text", "argument", "value"),
    [
        ("option.rope_theta=500000.0", "hf_overrides", {"rope_theta": 500000.0}),
        (
            'option.rope_theta=1e6\noption.rope_scaling={"type": "linear"}\noption.hf_overrides={"a": 1}',
            "hf_overrides",
            {"rope_theta": 1e6, "rope_scaling": {"type": "linear"}, "a": 1},
        ),
        ('option.rope_theta=1e6\noption.hf_overrides={"rope_theta": 5}', "hf_overrides", {"rope_theta": 5}),
        ("option.guided_decoding_backend=outlines", "structured_outputs_config", {"backend": "outlines"}),
        ("option.limit_mm_per_prompt=image=4,video=1", "limit_mm_per_prompt", {"image": 4, "video": 1}),
        (
            "option.speculative_model=org/draft\noption.num_speculative_tokens=3\noption.speculative_max_model_len=99",
            "speculative_config",
            {"model": "org/draft", "num_speculative_tokens": 3, "max_model_len": 99},
        ),
        (
            "option.speculative_model=[ngram]\noption.num_speculative_tokens=3\noption.ngram_prompt_lookup_max=4",
            "speculative_config",
            {"method": "ngram", "num_speculative_tokens": 3, "prompt_lookup_max": 4},
        ),
    ],
)
def test_former_arguments_of_vllm(
    model_dir: ModelDirectory, plugins: Plugins, text: str, argument: str, value: object
) -> None:
    directory = model_dir({"serving.properties": properties("vllm", text)})
    backend = Model(read_plan("model", directory, {}, plugins), plugins.formatters).backend
    assert isinstance(backend, vllm_backend.VllmBackend)
    assert json.loads(backend.arguments[argument]) == value


@pytest.mark.parametrize("rolling_batch", ["vllm", "lmi-dist", "trtllm", "scheduler", "scripted"])
def test_every_documented_key_is_known(model_dir: ModelDirectory, plugins: Plugins, rolling_batch: str) -> None:
    """Known to each backend: as read, or with the reason why it means nothing."""
    keys = [key for key in DJL_KEYS if key != "option.rolling_batch"]
    text = "\n".join(f"{key}=1" for key in keys) + f"\noption.rolling_batch={rolling_batch}\n"
    configuration = Configuration.read(model_dir({"serving.properties": text}), {})
    backend = plugins.backends.get(rolling_batch)
    for declaring in (ServerProperties, RequestProperties, backend.properties_type):
        configuration.load(declaring)
    configuration.pass_through(backend.engine_arguments())
    configuration.explain_unread(foreign_keys(backend, plugins.backends))
    assert [warning for warning in configuration.warnings if "is not a known key" in warning] == []


@pytest.mark.parametrize(
    ("files", "message"),
    [({}, "there is no such file in "), ({"lmcache.yaml": ""}, "needs LMCache: pip install lmcache")],
)
async def test_lmcache_that_is_not_there(
    model_dir: ModelDirectory, plugins: Plugins, files: dict[str, str], message: str
) -> None:
    text = properties("vllm", "option.model_id=.\noption.lmcache_config_file=lmcache.yaml")
    plan = read_plan("model", model_dir({"serving.properties": text, "config.json": "{}", **files}), {}, plugins)
    with pytest.raises(ConfigurationError, match=message):
        await Model(plan, plugins.formatters).start()


def test_lmcache_is_told_of_its_configuration(model_dir: ModelDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vllm, "find_spec", lambda name: object())
    monkeypatch.setenv(vllm.CONFIG_FILE_VARIABLE, "")
    directory = model_dir({"lmcache.yaml": ""})
    vllm.use_lmcache(directory, "lmcache.yaml")
    assert os.environ[vllm.CONFIG_FILE_VARIABLE] == str(directory / "lmcache.yaml")


@pytest.mark.parametrize(
    ("text", "sizes", "engines"),
    [
        ("option.tensor_parallel_degree=2", (2, 1, 1), GPUS // 2),
        ("option.tensor_parallel_degree=2\noption.data_parallel_size=2", (2, 1, 2), GPUS // 4),
        ("option.tensor_parallel_degree=2\noption.pipeline_parallel_degree=2", (2, 2, 1), GPUS // 4),
        ("option.tensor_parallel_degree=64\noption.distributed_executor_backend=ray", (64, 1, 1), 1),
        ("option.pipeline_parallel_degree=32\noption.worker_use_ray=true", (GPUS, 32, 1), 1),
        ("option.data_parallel_size=64\noption.data_parallel_backend=ray", (GPUS, 1, 64), 1),
    ],
)
def test_engines_over_devices_and_nodes(
    model_dir: ModelDirectory,
    plugins: Plugins,
    monkeypatch: pytest.MonkeyPatch,
    text: str,
    sizes: tuple[int, int, int],
    engines: int,
) -> None:
    """vLLM's own parallelism passes through; over the nodes of a Ray cluster, this host's GPUs do not bound it."""
    monkeypatch.setattr(current_platform, "device_count", lambda: GPUS)
    plan = read_plan("model", model_dir({"serving.properties": properties("vllm", text)}), {}, plugins)
    model = Model(plan, plugins.formatters)
    backend = model.backend
    assert isinstance(backend, vllm_backend.VllmBackend)
    assert backend.substitutions == ()
    passed = engine_arguments(backend.arguments)
    assert (passed.tensor_parallel_size, passed.pipeline_parallel_size, passed.data_parallel_size) == sizes
    assert "ray" in (passed.distributed_executor_backend, passed.data_parallel_backend) or engines > 1
    assert backend.placement(backend.setup.replicas).replicas.minimum == engines


@pytest.mark.parametrize(
    ("text", "engines"),
    [
        ("option.tensor_parallel_degree=2", 3 * GPUS // 2),
        ("option.tensor_parallel_degree=2\noption.pipeline_parallel_degree=2\nminWorkers=2", 2 * 3 * GPUS // 4),
        ("", 3),
    ],
)
def test_engines_on_a_cluster(
    model_dir: ModelDirectory, plugins: Plugins, monkeypatch: pytest.MonkeyPatch, text: str, engines: int
) -> None:
    monkeypatch.setattr(vllm_backend, "gpus_in_groups", lambda size: 3 * (GPUS // size * size))
    monkeypatch.setattr(vllm_backend, "max_node_gpus", lambda: GPUS)
    monkeypatch.setattr(vllm_backend, "visible_gpus", lambda: 0)
    options = properties("vllm", f"ray_address=auto\n{text}")
    plan = read_plan("model", model_dir({"serving.properties": options}), {}, plugins)
    backend = Model(plan, plugins.formatters).backend
    assert isinstance(backend, vllm_backend.VllmBackend)
    placement = backend.placement(backend.setup.replicas)
    assert (placement.ray_address, placement.replicas.minimum) == ("auto", engines)
    assert (backend.warnings, backend.substitutions) == ([], ())


def test_an_engine_of_many_nodes_is_not_on_a_cluster(model_dir: ModelDirectory, plugins: Plugins) -> None:
    options = properties("vllm", "ray_address=auto\nray_shared=true\noption.data_parallel_size=2")
    plan = read_plan("model", model_dir({"serving.properties": options}), {}, plugins)
    backend = Model(plan, plugins.formatters).backend
    assert isinstance(backend, vllm_backend.VllmBackend)
    assert backend.placement(backend.setup.replicas).ray_address is None
    warnings = "\n".join([*backend.warnings, *plan.configuration.warnings])
    assert "ray_address=auto has no effect: vLLM itself distributes this engine" in warnings
    assert "ray_shared has no effect: the engines of vllm belong to one server" in warnings
