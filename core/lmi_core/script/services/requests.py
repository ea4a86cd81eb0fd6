"""The parameters of a function's prompts, as transformers and LMI name them, to generation requests."""

import logging
from collections.abc import Mapping
from typing import Any

from lmi_core.backend import Backend
from lmi_core.did_you_mean import did_you_mean
from lmi_core.errors import InvalidParameter
from lmi_core.payloads.payload import shown
from lmi_core.payloads.tolerance import MAX_REPORTED_NAMES, shown_name
from lmi_core.request import GenerationRequest

logger = logging.getLogger(__name__)

NOT_GENERATION = ("output_formatter", "stream", "cached_prompt", "adapters", "images", "tools", "request_input")
CHAT_FORMATTERS = ("json_chat", "jsonlines_chat")  # their prompts have the special tokens of a chat template
ONE_SEQUENCE = "num_return_sequences"
WHOLE_LENGTH = "max_length"  # of the prompt and what is generated

_dropped: set[str] = set()  # names that were logged


def generation_request(
    prompt: str | list[int], parameters: Mapping[str, Any], backend: Backend[Any]
) -> GenerationRequest:
    """Return the request, dropping and logging unknown parameters. Raise InvalidParameter for invalid values."""
    given = {name: value for name, value in parameters.items() if name not in NOT_GENERATION and value is not None}
    if given.pop(ONE_SEQUENCE, 1) != 1:
        raise InvalidParameter(f"`{ONE_SEQUENCE}` must be 1; with rolling batch `n` gives several sequences")
    if isinstance(given.get("stop"), str | list):
        stop = given.pop("stop")
        given.setdefault("stop_sequences", [stop] if isinstance(stop, str) else stop)
    if isinstance(given.get("seed"), str):
        given["seed"] = _integer(given, "seed")
    if WHOLE_LENGTH in given and "max_new_tokens" not in given:
        given["max_new_tokens"] = max(1, _integer(given, WHOLE_LENGTH) - len(_ids(prompt, backend)))
    given.pop(WHOLE_LENGTH, None)
    adapter = parameters.get("adapters") or None
    return GenerationRequest(
        prompt,
        _known(given, backend),
        add_special_tokens=parameters.get("output_formatter") not in CHAT_FORMATTERS,
        adapter=adapter if isinstance(adapter, str) else None,
    )


def _integer(given: Mapping[str, Any], name: str) -> int:
    """Return an integer, perhaps given as text. Raise InvalidParameter for anything else."""
    try:
        return int(given[name])
    except (TypeError, ValueError, OverflowError):
        raise InvalidParameter(f"`{name}` must be an integer. Given: {shown(given[name])}") from None


def _ids(prompt: str | list[int], backend: Backend[Any]) -> list[int]:
    return prompt if isinstance(prompt, list) else backend.tokenizer.encode(prompt)


def _known(given: Mapping[str, Any], backend: Backend[Any]) -> dict[str, Any]:
    fields = backend.parameters_type.model_fields
    known = {*fields, *(field.alias for field in fields.values() if field.alias)}
    for name in sorted({shown_name(name) for name in given.keys() - known} - _dropped):
        if len(_dropped) >= MAX_REPORTED_NAMES:
            break
        _dropped.add(name)
        logger.warning(
            "the parameter %s is dropped: the %s backend has none.%s", name, backend.name, did_you_mean(name, known)
        )
    return {name: value for name, value in given.items() if name in known}
