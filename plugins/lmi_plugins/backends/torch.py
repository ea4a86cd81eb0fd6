"""The torch backend, on the embedded engine, for any causal language model of transformers on CPU, CUDA or MPS."""

import asyncio
import re
from collections.abc import AsyncGenerator, Collection, Coroutine, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, TypeVar, get_args

from pydantic import Field, PositiveInt, field_validator

from lmi_core.backend import Backend, BackendSetup
from lmi_core.configuration.location import RemoteModel
from lmi_core.configuration.model_source import model_source
from lmi_core.configuration.properties import ModelProperties, Names, NoEffect
from lmi_core.embedding_backend import EmbeddingBackend, Vector
from lmi_core.errors import Forbidden, InvalidParameter
from lmi_core.generation.embedding_request import ValidEmbedding
from lmi_core.generation.output import GenerationStep
from lmi_core.generation.parameters import ExtendedParameters, GenerationParameters
from lmi_core.generation.request import ValidRequest
from lmi_core.host.substitution import Substitution
from lmi_core.texts.huggingface_tokenizer import HuggingFaceTokenizer
from lmi_core.workers.placement import Placement, placement
from lmi_core.workers.ray_actor import connect, num_gpus
from lmi_core.workers.replicas import ReplicaCount
from lmi_plugins.backends.engine_properties import (
    EngineProperties,
    adapter_folders,
    draft_model,
    engine_downloads,
    int8_warnings,
)
from lmi_plugins.backends.torch_devices import (
    available_device,
    degree_substitutions,
    device_placement,
    device_substitution,
    dtype_substitution,
    openvino_substitutions,
    runs_on_cpu,
    text_only,
    this_host,
)
from lmi_plugins.torch_engine.checkpoint.plain_models import inspect_plain_model
from lmi_plugins.torch_engine.checkpoint.weight_files import check_weight_files
from lmi_plugins.torch_engine.client.client import EngineClient
from lmi_plugins.torch_engine.client.early import ALIASES, BACKEND
from lmi_plugins.torch_engine.messages.embeddings import EmbeddingInput, EmbeddingOptions
from lmi_plugins.torch_engine.messages.requests import (
    CpuRunner,
    DataType,
    EngineOptions,
    Quantization,
    sampling_parameters,
)

T = TypeVar("T")

QUANTIZATIONS: tuple[Quantization, ...] = get_args(Quantization)


class TorchProperties(EngineProperties):
    """The options of the torch engine."""

    dtype: Annotated[DataType | Literal["int8"], Names(aliases=("data_type",))] = Field(
        "auto", description="Data type of the weights and the computation; auto means the model's own."
    )
    device: str = Field(
        "auto", description="The device: auto (CUDA, otherwise MPS, otherwise CPU), cpu, cuda, cuda:N or mps."
    )
    cpu_runner: CpuRunner = Field(
        "auto",
        description="The library that computes on the CPU: torch, openvino (needs the extra `cpu`), or auto: "
        "openvino if it is installed and supports the model, and the model has at least 8 million parameters.",
    )
    max_rolling_batch_prefill_tokens: Annotated[PositiveInt, Names(environment=("MAX_BATCH_PREFILL_TOKENS",))] = Field(
        512,
        description="Maximum number of prompt tokens in one step; longer prompts are split into several steps, with "
        "decode steps in between.",
    )
    kv_cache_memory: PositiveInt | None = Field(
        None,
        description="Size of the KV cache, in bytes, which is allocated at the start. Default: a share of the free "
        "memory.",
    )
    enable_prefix_caching: bool = Field(
        True, description="Cache the keys and values of prompts, and reuse them for prompts with the same prefix."
    )
    enable_lora: bool = Field(True, description="Support LoRA adapters; this costs nothing while there are none.")
    enforce_eager: bool = Field(
        False,
        description="Run decode steps on a GPU without CUDA graphs: slower with few requests, but uses less memory.",
    )
    load_format: Annotated[
        str, NoEffect("the torch engine detects the format of the weights, safetensors or PyTorch's own")
    ] = "auto"
    quantize: Annotated[
        str | None,
        Names(aliases=("quantization",), environment=("HF_MODEL_QUANTIZE",)),
        NoEffect(
            "the torch engine does not quantize; quantized weights are loaded as the model's configuration says",
            except_for=QUANTIZATIONS,
        ),
    ] = Field(
        None,
        description="int8 or int4 quantizes the weights while loading, on CPUs with OpenVINO. Other methods have no "
        "effect: quantized weights are loaded as the model's configuration says.",
    )
    device_map: str | None = Field(
        None, description="transformers' name for option.device, which takes precedence: auto or a single device."
    )
    lora_dtype: Annotated[str | None, NoEffect("adapters have the data type of the model")] = None

    @field_validator("device")
    @classmethod
    def _known_device(cls, value: str) -> str:
        if not re.fullmatch(r"auto|cpu|mps|(cuda|xpu|hpu|npu)(:\d+)?", value):
            raise ValueError("must be auto, cpu, cuda, cuda:N or mps")
        return value

    @property
    def chosen_device(self) -> str:
        """The device of `option.device`, otherwise of `option.device_map` if that is a single device."""
        if self.device_map is not None and self.device == "auto" and self._maps_to_one:
            return self.device_map
        return self.device

    @property
    def warnings(self) -> list[str]:
        """A line for each option that the torch engine treats differently from LMI."""
        spread = [
            f"option.{name}={degree}"
            for name, degree in self._degrees.items()
            if isinstance(degree, int) and degree > 1 and this_host().gpus != 0
        ]
        warnings = [f"{' and '.join(spread)} has no effect: the torch engine runs on one device"] if spread else []
        if self.device_map is not None and self.device_map != "auto" and not self._maps_to_one:
            warnings.append(f"option.device_map={self.device_map} has no effect: the torch engine runs on one device")
        return [*warnings, *int8_warnings(self.dtype)]

    @property
    def substitutions(self) -> list[Substitution]:
        """Replacements for requested options that this host cannot fulfil."""
        host, device = this_host(), available_device(self.chosen_device, this_host())
        option = "option.device" if self.chosen_device == self.device else "option.device_map"
        found = [
            *device_substitution(option, self.chosen_device, host),
            *degree_substitutions(self._degrees, host),
            *dtype_substitution(self.dtype, device, host),
        ]
        if self.gpu_memory_utilization is not None and runs_on_cpu(device, host):
            instead = "the KV cache gets a share of the free main memory, unless option.kv_cache_memory sets it"
            share = str(self.gpu_memory_utilization)
            found.append(Substitution("option.gpu_memory_utilization", share, "the model runs on the CPU", instead))
        return found

    @property
    def _degrees(self) -> dict[str, object]:
        return {name: getattr(self, name) for name in ("tensor_parallel_degree", "pipeline_parallel_degree")}

    @property
    def _maps_to_one(self) -> bool:
        return re.fullmatch(r"cpu|mps|cuda(:\d+)?", self.device_map or "") is not None


# Options of the engine by the same name, but for those in another form.
CONVERTED = {"adapters", "device", "dtype", "gpu_memory_utilization", "quantize", "speculative_draft_model"}
SAME_OPTIONS = TorchProperties.model_fields.keys() & set(EngineOptions.__struct_fields__) - CONVERTED


class TorchBackend(Backend[TorchProperties], EmbeddingBackend):
    name = BACKEND
    aliases: ClassVar[tuple[str, ...]] = ALIASES
    auto_priority: ClassVar[int | None] = 0
    properties_type: ClassVar[type[ModelProperties]] = TorchProperties
    parameters_type: ClassVar[type[GenerationParameters]] = ExtendedParameters
    replicates = runs_on_ray = True
    shares_engines: ClassVar[bool] = True
    client_type: ClassVar[type[EngineClient]] = EngineClient

    def __init__(self, setup: BackendSetup[TorchProperties]) -> None:
        super().__init__(setup)
        self.options = self.engine_options(setup)
        self.warnings = [*setup.properties.warnings, *text_only(self.options)]
        self.substitutions = [*setup.properties.substitutions, *openvino_substitutions(self.options, this_host())]
        self.engine = self.client_type(
            self.options,
            setup.retry_threshold,
            setup.properties.max_stream_delay / 1000,
            setup.properties.heartbeat_timeout,
            setup.loading_timeout,
            resume=setup.properties.resume,
            placement=self.placement(setup.replicas),
            max_idle_time=setup.max_idle_time,
        )
        self.replicas = self.engine.replicas

    @classmethod
    def engine_options(cls, setup: BackendSetup[Any]) -> EngineOptions:
        """Return the options of the engine."""
        return engine_options(setup.directory, setup.properties)

    @classmethod
    def downloads(cls, setup: BackendSetup[TorchProperties]) -> Mapping[str, RemoteModel]:
        return engine_downloads(setup)

    @classmethod
    def inspect(cls, setup: BackendSetup[TorchProperties]) -> Iterator[str]:
        options = cls.engine_options(setup)
        local = Path(options.model).is_dir()
        if not local and options.device == "auto":
            return
        if local and runs_on_cpu(options.device, this_host()):
            faults = inspect_plain_model(options)
            if faults is not None:
                yield from faults
                return
        from lmi_plugins.torch_engine.worker.inspection import inspect_device, inspect_model  # imports torch

        yield from inspect_device(options.device)
        if local:
            yield from inspect_model(options)

    async def start(self) -> None:
        await self._place_on_cluster()
        self.engine.report = self.progress.report
        self.progress.report("starting the engine's process")
        try:
            self.tokenizer = await with_tokenizer(self.options, self.engine.start(self.former))
        except BaseException:
            await self.stop()
            raise
        self.max_length = self.engine.max_length
        self.generates, self.embedding = self.engine.generates, self.engine.embedding

    async def _place_on_cluster(self) -> None:
        """Connect to the Ray cluster, if any, to place as many replicas as fit.

        Raise ConfigurationError if that fails.
        """
        if self.setup.ray_address is not None:
            await connect(self.setup.ray_address)
            self.engine.placement = self.placement(self.setup.replicas)
            self.engine.replicas.count = self.engine.placement.replicas

    async def stop(self) -> None:
        await self.engine.stop()

    async def health(self) -> None:
        self.engine.replicas.check_health()

    def placement(self, of_group: ReplicaCount) -> Placement:
        """Return the devices of the replicas: that many for each group of devices that the model would need in LMI."""
        properties = self.setup.properties
        degree = properties.tensor_parallel_degree
        size = degree if isinstance(degree, int) else 1
        if self.setup.ray_address is not None:
            on_cluster = placement(of_group, (), num_gpus(), size)
            return on_cluster._replace(ray_address=self.setup.ray_address, ray_shared=self.setup.ray_shared)
        return device_placement(of_group, self.setup.devices, properties.chosen_device, size, this_host())

    @property
    def adapters(self) -> Collection[str]:
        return self.engine.adapters

    async def load_adapter(self, name: str, directory: Path) -> None:
        self._check_not_shared()
        await self.engine.load_adapter(name, str(directory))

    async def pin_adapter(self, name: str, pinned: bool) -> None:
        self._check_not_shared()
        await self.engine.pin_adapter(name, pinned)

    async def unload_adapter(self, name: str) -> None:
        self._check_not_shared()
        await self.engine.unload_adapter(name)

    def _check_not_shared(self) -> None:
        if self.setup.ray_shared:
            raise Forbidden(
                "other servers share the model's engines (ray_shared), so its adapters cannot be changed while it is "
                "served: restart the servers with the change"
            )

    def generate(self, request: ValidRequest) -> AsyncGenerator[GenerationStep, None]:
        assert isinstance(request.parameters, ExtendedParameters), request.parameters
        parameters = sampling_parameters(request.parameters, request.markers, ranks=request.ranks)
        return self.engine.generate(request.prompt_ids, parameters, request.adapter)

    def embed(self, requests: Sequence[ValidEmbedding]) -> AsyncGenerator[Vector, None]:
        for request in requests:
            if request.adapter is not None:
                raise InvalidParameter(
                    f"the torch engine makes embeddings without adapters: leave out the adapter `{request.adapter}`"
                )
        return self.engine.embed(
            [EmbeddingInput(each.prompt_ids, each.dimensions, each.normalize, each.token_types) for each in requests]
        )


def engine_options(directory: Path, properties: TorchProperties) -> EngineOptions:
    host = this_host()
    device = available_device(properties.chosen_device, host)
    adapters = {name: str(folder) for name, folder in adapter_folders(directory, properties).items()}
    same: dict[str, Any] = {name: getattr(properties, name) for name in SAME_OPTIONS}
    return EngineOptions(
        **same,
        model=model_source(directory, properties),
        dtype="auto" if properties.dtype == "int8" else properties.dtype,
        device=device,
        quantize=next((each for each in QUANTIZATIONS if each == properties.quantize), None),
        max_batch_size=properties.max_rolling_batch_size,
        max_prefill_tokens=properties.max_rolling_batch_prefill_tokens,
        gpu_memory_utilization=None if runs_on_cpu(device, host) else properties.gpu_memory_utilization,
        adapters=adapters if properties.enable_lora else {},
        speculative_draft_model=draft_model(directory, properties),
        guide_limits=properties.guide_limits,
        embedding=EmbeddingOptions(
            properties.asked_task,
            properties.engine_pooling,
            properties.normalize,
            properties.smaller_sizes,
            properties.any_size,
        ),
    )


async def with_tokenizer(options: EngineOptions, start: Coroutine[Any, Any, None]) -> HuggingFaceTokenizer:
    """Return the tokenizer, which is loaded while the engine starts.

    Raise ConfigurationError for damaged weights at once; the engine would import its libraries first.
    """

    def load() -> HuggingFaceTokenizer:
        check_weight_files(options)
        return HuggingFaceTokenizer.load(options.model, options.revision, options.trust_remote_code)

    starting = asyncio.create_task(start)
    try:
        tokenizer = await asyncio.to_thread(load)
        await starting
        return tokenizer
    except BaseException:
        starting.cancel()
        await asyncio.gather(starting, return_exceptions=True)
        raise
