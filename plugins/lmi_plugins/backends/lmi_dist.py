"""The lmi-dist backend, which serves LMI-Dist's model directories on vLLM or, without vLLM, on the torch engine."""

import logging
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from importlib.util import find_spec
from typing import Annotated, Any

from pydantic import Field, ValidationError

from lmi_core.backend import Backend, BackendSetup
from lmi_core.configuration.properties import Names, NoEffect, declared
from lmi_core.errors import ConfigurationError
from lmi_core.hookspecs import hookimpl
from lmi_plugins.backends.torch import TorchBackend, TorchProperties
from lmi_plugins.backends.vllm import HOW_TO_INSTALL, VllmBackend, VllmParameters
from lmi_plugins.backends.vllm_properties import VllmProperties
from lmi_plugins.vllm_engine.arguments.former import FORMER_ARGUMENTS
from lmi_plugins.vllm_engine.arguments.names import ENGINE_ARGUMENTS

logger = logging.getLogger(__name__)

ONE_DEVICE = "the torch engine runs on one device"

OF_VLLM = "it is for vLLM, and the torch engine has no equivalent"

# Options of vLLM and LMI-Dist with no effect on the torch engine, besides those that it declares itself.
WITHOUT_EFFECT_ON_TORCH: Mapping[str, str] = {
    "cpu_offload_gb_per_gpu": ONE_DEVICE,
    "disable_custom_all_reduce": ONE_DEVICE,
    "disable_sliding_window": "the torch engine always uses the model's sliding windows",
    "draft_model_tp_size": ONE_DEVICE,
    "enable_chunked_prefill": "the torch engine always computes long prompts in several steps",
    "fully_sharded_loras": ONE_DEVICE,
    "tokenizer_mode": "transformers chooses the tokenizer",
}


class LmiDistProperties(VllmProperties):
    """vLLM's options, and LMI-Dist's further ones."""

    cpu_offload_gb_per_gpu: Annotated[float | None, Names(aliases=("cpu_offload_gb",))] = Field(
        None, ge=0, description="GiB of the weights to keep in main memory, for each GPU."
    )
    lora_extra_vocab_size: Annotated[
        int | None, NoEffect("LoRA adapters with tokens of their own are not supported")
    ] = None


class LmiDistBackend(VllmBackend):
    name = "lmi-dist"
    aliases = ("lmi_dist",)
    auto_priority = None
    properties_type = LmiDistProperties

    def __init__(self, setup: BackendSetup[VllmProperties]) -> None:
        super().__init__(setup)
        assert isinstance(setup.properties, LmiDistProperties), setup.properties
        if setup.properties.cpu_offload_gb_per_gpu is not None:
            self.arguments["cpu_offload_gb"] = str(setup.properties.cpu_offload_gb_per_gpu)

    async def start(self) -> None:
        logger.info("lmi-dist runs on vLLM, which is installed")
        await super().start()


class TorchLmiDistBackend(TorchBackend):
    """The lmi-dist backend on the torch engine, registered where vLLM is not installed."""

    name = LmiDistBackend.name
    aliases = LmiDistBackend.aliases
    auto_priority = None
    properties_type = LmiDistProperties
    parameters_type = VllmParameters

    def __init__(self, setup: BackendSetup[Any]) -> None:
        """Translate the options to the torch engine's. Raise ConfigurationError for a value that it does not accept."""
        given = _given(setup)
        properties = _torch_properties(given)
        super().__init__(replace(setup, properties=properties))
        self.warnings = [f"lmi-dist runs on the torch engine, as vLLM is not installed: {HOW_TO_INSTALL}"]
        self.warnings += [*properties.warnings, *_explanations(given, properties)]

    @classmethod
    def engine_arguments(cls) -> Collection[str]:
        own = TorchProperties.model_fields.keys() | WITHOUT_EFFECT_ON_TORCH.keys()
        return own | ENGINE_ARGUMENTS | FORMER_ARGUMENTS

    @classmethod
    def known_engine_arguments(cls) -> Collection[str]:
        return cls.engine_arguments()


def _given(setup: BackendSetup[Any]) -> dict[str, object]:
    """Return the given options by name; undeclared ones are raw text."""
    properties: LmiDistProperties = setup.properties
    return {**properties.model_dump(exclude_unset=True), **setup.engine_arguments}


def _torch_properties(given: Mapping[str, object]) -> TorchProperties:
    own = {name: value for name, value in given.items() if name in TorchProperties.model_fields}
    try:
        return TorchProperties.model_validate(own)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        reason = first["msg"].removeprefix("Value error, ")
        raise ConfigurationError(
            f"option.{first['loc'][0]} {reason}. Given: {first['input']}"
            f" (lmi-dist runs on the torch engine, as vLLM is not installed: {HOW_TO_INSTALL})"
        ) from None


def _explanations(given: Mapping[str, object], properties: TorchProperties) -> list[str]:
    """Return a warning for each given option that has no effect on the torch engine."""
    explained = {key.field for key in declared(LmiDistProperties) if key.no_effect}
    unread = given.keys() - TorchProperties.model_fields.keys() - explained
    reasons = dict.fromkeys(unread, OF_VLLM) | dict(WITHOUT_EFFECT_ON_TORCH)
    for key in declared(TorchProperties):
        if key.no_effect and getattr(properties, key.field) != TorchProperties.model_fields[key.field].default:
            reasons[key.field] = key.no_effect
    return [f"option.{name}={given[name]} has no effect: {reasons[name]}" for name in given if name in reasons]


@hookimpl
def lmi_register_backends(register: Callable[[type[Backend[Any]]], None]) -> None:
    register(LmiDistBackend if find_spec("vllm") is not None else TorchLmiDistBackend)
