"""GenerationRequest to ValidRequest: the one place where a request is checked against a backend."""

from typing import Any

from pydantic import ValidationError

from lmi_core.backend import Backend
from lmi_core.errors import ContextLengthExceeded, InvalidParameter
from lmi_core.parameters import GenerationParameters
from lmi_core.payload import explain
from lmi_core.request import GenerationRequest, ValidRequest
from lmi_core.tokenizer import Tokenizer


def validate(request: GenerationRequest, backend: Backend[Any], request_id: str) -> ValidRequest:
    """Raises InvalidParameter or ContextLengthExceeded, each naming the field, its bound and the value given."""
    parameters = _parameters(request, backend)
    prompt, prompt_ids = _tokenized(request, backend.tokenizer)
    if parameters.most_prompt_tokens is not None:
        prompt_ids = prompt_ids[-parameters.most_prompt_tokens :]
    room = backend.max_length - len(prompt_ids)
    if not prompt_ids:
        raise InvalidParameter(f"`{_name(request, 'inputs')}` must hold at least one token. Given: 0")
    if room < 1:
        raise ContextLengthExceeded(
            f"`{_name(request, 'inputs')}` must be at most {backend.max_length - 1} tokens long."
            f" Given: {len(prompt_ids)}"
        )
    if parameters.max_new_tokens > room:
        parameters = _fit(request, parameters, room, backend.max_length)
    return ValidRequest(request_id, prompt, prompt_ids, parameters, request.adapter)


def _tokenized(request: GenerationRequest, tokenizer: Tokenizer) -> tuple[str, list[int]]:
    if isinstance(request.prompt, str):
        return request.prompt, tokenizer.encode(request.prompt, request.add_special_tokens)
    last = tokenizer.vocabulary_size - 1
    for token_id in request.prompt:
        if not 0 <= token_id <= last:
            raise InvalidParameter(
                f"`{_name(request, 'inputs')}` must hold token ids from 0 to {last}. Given: {token_id}"
            )
    return tokenizer.decode(request.prompt), request.prompt


def _parameters(request: GenerationRequest, backend: Backend[Any]) -> GenerationParameters:
    given = {name: value for name, value in request.parameters.items() if value is not None}
    try:
        return backend.parameters_type.model_validate(given)
    except ValidationError as error:
        raise InvalidParameter(
            explain(error, backend.parameters_type, f"the {backend.name} backend's parameters", request.names)
        ) from None


def _name(request: GenerationRequest, name: str) -> str:
    return request.names.get(name, name)


def _fit(request: GenerationRequest, parameters: GenerationParameters, room: int, context: int) -> GenerationParameters:
    """A default gives way to the context; a number that the client asked for only where its dialect says so."""
    if request.fits_context or "max_new_tokens" not in parameters.model_fields_set:
        return parameters.model_copy(update={"max_new_tokens": room})
    raise ContextLengthExceeded(
        f"`{_name(request, 'max_new_tokens')}` must be at most {room} after a prompt of {context - room} tokens"
        f" (the model's context is {context}). Given: {parameters.max_new_tokens}"
    )
