"""What of a request reaches vLLM's connectors and processors as it is."""

from typing import Any

from lmi_core.errors import InvalidParameter
from lmi_core.generation.extended_parameters import ExtendedParameters
from lmi_plugins.vllm_engine.requests.logits_processors import ARGUMENT_NAMES, extra_arguments
from lmi_plugins.vllm_engine.requests.vllm_fields import fields_of

TRANSFERS = ("kv_transfer_params", "ec_transfer_params")
# vLLM's router puts the prompt's token ids there, to spare the second engine the tokenizing.
PROMPT_OF_TRANSFER = "prompt_token_ids"


def all_extra_arguments(parameters: ExtendedParameters) -> dict[str, Any] | None:
    """Return `SamplingParams.extra_args`: the arguments of our logits processors, and the request's own."""
    passed = fields_of(parameters)
    given = {**(passed.vllm_xargs or {}), **(extra_arguments(parameters) or {})}
    for name in TRANSFERS:
        if asked := getattr(passed, name):
            given[name] = {key: value for key, value in asked.items() if key != PROMPT_OF_TRANSFER}
    return given or None


def check_passed_fields(parameters: ExtendedParameters) -> None:
    """Raise InvalidParameter for what would reach a processor or a connector unchecked, or nobody at all."""
    passed = fields_of(parameters)
    for name in passed.vllm_xargs or ():
        if name in ARGUMENT_NAMES or name in TRANSFERS:
            raise InvalidParameter(f"`vllm_xargs` must not contain `{name}`, which is a separate parameter")
    for name in ("vllm_xargs", *TRANSFERS):
        if getattr(passed, name) and parameters.num_beams > 1:
            raise InvalidParameter(f"`num_beams` above 1 and `{name}` cannot be used together with vLLM")
