"""Validation of requests against a backend: GenerationRequest to ValidRequest."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from pydantic import ValidationError

from lmi_core.backend import Backend
from lmi_core.errors import ContextLengthExceeded, InvalidParameter
from lmi_core.generation.images import Image
from lmi_core.generation.parameters import ALL_TOKENS, GenerationParameters
from lmi_core.generation.request import PROMPT, GenerationRequest, ShorterPrompt, ValidRequest
from lmi_core.generation.tokenizer import Tokenizer
from lmi_core.handler import Generation
from lmi_core.host.off_loop import LONG_TEXT, run_off_loop
from lmi_core.payloads.payload import explain, quote
from lmi_core.payloads.tolerant_payload import field_names
from lmi_core.tolerance import drop_unknown, is_neutral

# Parameters that can return the whole vocabulary: writing it, 20 MB of JSON, delays all other requests by half a
# second.
MAX_PROMPT_LOG_PROBS = 2**18
LONG = (str, list, dict)  # types of parameters that may be long
CHARACTERS_PER_PROMPT = 500  # take as long as the fixed cost of each prompt


async def validate_all(
    requests: Sequence[GenerationRequest], backend: Backend[Any], request_id: str, key: str | None = None
) -> list[ValidRequest]:
    """Return the requests, checked against the backend; long prompts are tokenized outside the event loop.

    `key` is the holder of the client's API key. Raise InvalidParameter, or InvalidPayload for an image.
    """
    complete: list[GenerationRequest] = []
    for request in requests:
        if request.shorten is not None:
            request = await _shorten(request, request.shorten)
        if request.images:
            request = await with_images(request, backend)
        complete.append(request)
    ids = [request_id] if len(requests) == 1 else [f"{request_id}-{i}" for i in range(len(requests))]

    def validate_each() -> list[ValidRequest]:
        return [validate(request, backend, each_id, key) for request, each_id in zip(complete, ids, strict=True)]

    return await run_off_loop(size_of(complete), validate_each)


async def drop_all_unknown(generation: Generation, backend: Backend[Any], *, strict: bool) -> Generation:
    """Return the call without unknown parameters, and with their names in `ignored`.

    Raise InvalidParameter for one that must not be dropped; for any if the model or the call is `strict`.
    """
    known = field_names(backend.parameters_type)
    for request in generation.requests:
        if not request.parameters.keys() <= known:
            break
    else:
        return generation

    def drop_each() -> list[tuple[GenerationRequest, tuple[str, ...]]]:
        return [drop_unknown(request, backend, strict or generation.strict) for request in generation.requests]

    found = await run_off_loop(size_of(generation.requests), drop_each)
    requests = tuple(request for request, _ in found)
    if requests == generation.requests:
        return generation
    ignored = dict.fromkeys(name for _, names in found for name in names)
    return replace(generation, requests=requests, ignored=(*generation.ignored, *ignored))


async def _shorten(request: GenerationRequest, shorten: Callable[[], ShorterPrompt]) -> GenerationRequest:
    # A fill-in-the-middle prompt's parts are tokenized several times.
    prompt, images = await run_off_loop(LONG_TEXT + len(request.prompt), shorten)
    return replace(request, prompt=prompt, images=images, shorten=None)


async def with_images(request: GenerationRequest, backend: Backend[Any]) -> GenerationRequest:
    """Return the request with its images read and placed. Raise InvalidPayload or InvalidParameter."""
    if len(request.images) > backend.max_images:
        raise InvalidParameter(
            f"`{_name(request, PROMPT)}` must contain at most {backend.max_images} images. Given: {len(request.images)}"
        )
    images = [Image(source.place, await source.read()) for source in request.images]
    tokenized = partial(_tokenize, request, backend.tokenizer)
    _, prompt_ids = await run_off_loop(len(request.prompt), tokenized)
    return replace(request, image_prompt=await backend.place_images(prompt_ids, images, request.parameters))


def validate(
    request: GenerationRequest, backend: Backend[Any], request_id: str, key: str | None = None
) -> ValidRequest:
    """Return the request as the backend can serve it.

    Raise InvalidParameter or ContextLengthExceeded, each naming the field, its bound and the value given.
    """
    parameters = _parameters(request, backend)
    max_length = min(backend.max_length - 1, backend.max_input_length or backend.max_length)
    count, prompt_top_tokens = parameters.max_prompt_tokens, parameters.num_prompt_top_tokens
    if count is None:
        _check_length(request, backend.tokenizer, max_length)
    prompt, prompt_ids = _tokenize(request, backend.tokenizer)
    if count is not None:
        if request.images:
            raise InvalidParameter(f"`{_name(request, 'truncate')}` cannot be used with images, which it could cut off")
        prompt_ids = prompt_ids[:count] if parameters.keeps_first_tokens else prompt_ids[-count:]
    if not prompt_ids:
        raise InvalidParameter(f"`{_name(request, PROMPT)}` must contain at least one token. Given: 0")
    if len(prompt_ids) > max_length:
        raise ContextLengthExceeded(
            f"`{_name(request, PROMPT)}` must be at most {max_length} tokens long. Given: {len(prompt_ids)}",
            prompt_tokens=len(prompt_ids),
            max_prompt_tokens=max_length,
        )
    if prompt_top_tokens == ALL_TOKENS:
        _check_prompt_log_probs(request, len(prompt_ids), backend.tokenizer.vocabulary_size)
    if request.max_length is not None:
        parameters = parameters.model_copy(update={"max_new_tokens": _rest(request.max_length, len(prompt_ids))})
    room = backend.max_length - len(prompt_ids)
    if parameters.max_new_tokens > min(room, backend.max_output_length or room):
        parameters = _fit(request, parameters, room, backend)
    return ValidRequest(
        request_id,
        prompt,
        prompt_ids,
        parameters,
        request.adapter,
        image_prompt=request.image_prompt,
        ignored=request.ignored,
        markers=request.markers,
        key=key,
    )


def _check_length(request: GenerationRequest, tokenizer: Tokenizer, max_length: int) -> None:
    """Raise ContextLengthExceeded for a prompt that is certainly too long, before it is tokenized or decoded."""
    prompt = request.prompt
    if len(prompt) <= max_length:
        return
    tokens = tokenizer.min_tokens(prompt) if isinstance(prompt, str) else len(prompt)
    if tokens <= max_length:
        return
    at_least = "at least " if isinstance(prompt, str) else ""
    raise ContextLengthExceeded(
        f"`{_name(request, PROMPT)}` must be at most {max_length} tokens long. Given: {at_least}{tokens}",
        prompt_tokens=tokens,
        max_prompt_tokens=max_length,
    )


def _tokenize(request: GenerationRequest, tokenizer: Tokenizer) -> tuple[str, list[int]]:
    if request.image_prompt is not None and isinstance(request.prompt, str):
        return request.prompt, request.image_prompt.prompt_ids
    if isinstance(request.prompt, str):
        return request.prompt, tokenizer.encode(request.prompt, request.add_special_tokens)
    last = tokenizer.vocabulary_size - 1
    for token_id in request.prompt:
        if not 0 <= token_id <= last:
            raise InvalidParameter(
                f"`{_name(request, PROMPT)}` must contain token ids from 0 to {last}; {token_id} is out of vocabulary"
            )
    return tokenizer.decode(request.prompt, skip_special_tokens=False), request.prompt


def _parameters(request: GenerationRequest, backend: Backend[Any]) -> GenerationParameters:
    given = {name: value for name, value in request.parameters.items() if value is not None}
    for name, value in given.items():
        if name in backend.parameters_type.model_fields and not (backend.obeys(name) or is_neutral(name, value)):
            raise InvalidParameter(
                f"`{_name(request, name)}` must be omitted: the {backend.name} backend does not support it. "
                f"Given: {quote(value)}"
            )
    try:
        return backend.parameters_type.model_validate(given)
    except ValidationError as error:
        raise InvalidParameter(
            explain(error, backend.parameters_type, f"the {backend.name} backend's parameters", request.names)
        ) from None


def _check_prompt_log_probs(request: GenerationRequest, length: int, vocabulary: int) -> None:
    if length * vocabulary > MAX_PROMPT_LOG_PROBS:
        raise InvalidParameter(
            f"`{_name(request, 'prompt_logprobs')}` may be {ALL_TOKENS} for at most {MAX_PROMPT_LOG_PROBS} log "
            f"probabilities, but a prompt of {length} tokens has {length * vocabulary}: shorten it, or set 20"
        )


def _name(request: GenerationRequest, name: str) -> str:
    return request.names.get(name, name)


def _rest(max_length: int, prompt_length: int) -> int:
    """Return how many tokens may follow a prompt. Raise InvalidParameter if none may."""
    if max_length <= prompt_length:
        raise InvalidParameter(
            f"`max_length` must be greater than the prompt's number of tokens, {prompt_length}. Given: {max_length}"
        )
    return max_length - prompt_length


def _fit(
    request: GenerationRequest, parameters: GenerationParameters, room: int, backend: Backend[Any]
) -> GenerationParameters:
    """Return the parameters with a `max_new_tokens` that fits in the context.

    A number from the client is changed only if its dialect allows that. Raise ContextLengthExceeded if it does not fit.
    """
    maximum = min(room, backend.max_output_length or room)
    if request.fits_context or "max_new_tokens" not in parameters.model_fields_set:
        return parameters.model_copy(update={"max_new_tokens": maximum})
    context = backend.max_length
    why = f" after a prompt of {context - room} tokens (the model's context is {context})" if maximum == room else ""
    raise ContextLengthExceeded(
        f"`{_name(request, 'max_new_tokens')}` must be at most {maximum}{why}. Given: {parameters.max_new_tokens}"
    )


def size_of(requests: Sequence[GenerationRequest]) -> int:
    """Return the number of characters that take as long to validate and tokenize as the requests."""
    size = 0
    for request in requests:
        size += len(request.prompt) + CHARACTERS_PER_PROMPT
        for value in request.parameters.values():
            if isinstance(value, LONG):
                size += _size_of_parameter(value)
    return size


def _size_of_parameter(parameter: str | list[Any] | dict[str, Any]) -> int:
    """Return the number of characters and items of a parameter, counted up to a limit."""
    found, left = 0, [parameter]
    while left and found <= LONG_TEXT:
        value = left.pop()
        found += len(value)
        if not isinstance(value, str):
            inner = value.values() if isinstance(value, dict) else value
            left += [each for each in inner if isinstance(each, LONG)]
    return found
