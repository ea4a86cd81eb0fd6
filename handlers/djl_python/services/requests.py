"""Conversion of a function's prompts, with parameters named as in transformers or LMI, to generation requests."""

from collections.abc import Mapping
from typing import Any

from djl_python.chat_completions.chat_utils import CHAT_FORMATTERS
from lmi_core.backend import Backend
from lmi_core.errors import InvalidParameter
from lmi_core.generation.request import GenerationRequest
from lmi_core.payloads.payload import quote

NOT_TEXT = ("images", "tools")  # members of chats
NOT_GENERATION = (*NOT_TEXT, "output_formatter", "stream", "cached_prompt", "adapters", "request_input")
ONE_SEQUENCE = "num_return_sequences"
WHOLE_LENGTH = "max_length"  # the maximum length of prompt and output together


def generation_request(
    prompt: str | list[int], parameters: Mapping[str, Any], backend: Backend[Any]
) -> GenerationRequest:
    """Return the request, with parameters by LMI's names. Raise InvalidParameter for values that cannot be served."""
    for name in NOT_TEXT:
        if parameters.get(name):
            raise InvalidParameter(
                f"`{name}` cannot be given to a model function's service, which generates from text alone."
                f" Given: {quote(parameters[name])}"
            )
    given = {name: value for name, value in parameters.items() if name not in NOT_GENERATION and value is not None}
    if given.pop(ONE_SEQUENCE, 1) != 1:
        raise InvalidParameter(f"`{ONE_SEQUENCE}` must be 1; with rolling batch use `n` for several sequences")
    if isinstance(given.get("stop"), str | list):
        stop = given.pop("stop")
        given.setdefault("stop_sequences", [stop] if isinstance(stop, str) else stop)
    if isinstance(given.get("seed"), str):
        given["seed"] = _integer(given, "seed")
    if WHOLE_LENGTH in given and "max_new_tokens" not in given:
        given["max_new_tokens"] = max(1, _integer(given, WHOLE_LENGTH) - len(_ids(prompt, backend)))
    given.pop(WHOLE_LENGTH, None)
    adapter = parameters.get("adapters") or None
    if not isinstance(adapter, str | None):
        raise InvalidParameter(f"`adapters` must name one adapter for each prompt. Given: {quote(adapter)}")
    return GenerationRequest(
        prompt,
        given,
        # A chat template writes them itself
        add_special_tokens=parameters.get("output_formatter") not in CHAT_FORMATTERS,
        adapter=adapter,
    )


def _integer(given: Mapping[str, Any], name: str) -> int:
    """Return an integer, which may be given as text. Raise InvalidParameter for anything else."""
    try:
        return int(given[name])
    except (TypeError, ValueError, OverflowError):
        raise InvalidParameter(f"`{name}` must be an integer. Given: {quote(given[name])}") from None


def _ids(prompt: str | list[int], backend: Backend[Any]) -> list[int]:
    return prompt if isinstance(prompt, list) else backend.tokenizer.encode(prompt)
