"""Validation of embedding requests against the model: EmbeddingRequest to ValidEmbedding."""

from collections.abc import Sequence
from typing import Any

from lmi_core.backend import Backend
from lmi_core.embedding_backend import EmbeddingModel, require_embeddings
from lmi_core.errors import ContextLengthExceeded, InvalidParameter
from lmi_core.generation.embedding_request import EmbeddingRequest, Side, ValidEmbedding
from lmi_core.generation.tokenizer import Tokenizer
from lmi_core.host.beside_loop import read_beside

AS_MANY_AS_FIT = -1  # as `truncate`
CHARACTERS_PER_TEXT = 100  # that take as long as what each text takes whatever its length


async def validate_embeddings(
    requests: Sequence[EmbeddingRequest], backend: Backend[Any], model_name: str
) -> list[ValidEmbedding]:
    """Validate the requests against the backend; long texts are tokenized outside the event loop.

    Raise InvalidParameter, or ModelNotFound for a model without embeddings.
    """
    model = require_embeddings(backend, model_name)

    def validated() -> list[ValidEmbedding]:
        return [validate_embedding(request, model, backend.tokenizer) for request in requests]

    size = sum(len(request.text) + CHARACTERS_PER_TEXT for request in requests)
    return await read_beside(size, validated)


def validate_embedding(request: EmbeddingRequest, model: EmbeddingModel, tokenizer: Tokenizer) -> ValidEmbedding:
    """Return the validated request.

    Raise InvalidParameter or ContextLengthExceeded with the field, its bound and the given value.
    """
    _check_dimensions(request, model)
    prompt_ids = _token_ids(request, model, tokenizer)
    if not prompt_ids:
        raise InvalidParameter(f"`{request.name}` must contain at least one token. Given: 0")
    if len(prompt_ids) > model.max_length:
        raise ContextLengthExceeded(
            f"`{request.name}` must be at most {model.max_length} tokens long. Given: {len(prompt_ids)}"
        )
    return ValidEmbedding(prompt_ids, request.dimensions, request.normalize, request.adapter, request.cache_salt)


def _check_dimensions(request: EmbeddingRequest, model: EmbeddingModel) -> None:
    given, name = request.dimensions, request.names.get("dimensions", "dimensions")
    if given is None or given == model.size:
        return
    if model.dimensions == ():
        raise InvalidParameter(
            f"`{name}` must be left out or {model.size}, the one size of this model's vectors: nothing says that it is "
            f"a matryoshka model, whose vectors can be cut. Given: {given}"
        )
    if model.dimensions is None and not 1 <= given <= model.size:
        raise InvalidParameter(f"`{name}` must be from 1 to {model.size}, the size of the vectors. Given: {given}")
    if model.dimensions is not None and given not in model.dimensions:
        known = ", ".join(map(str, sorted({*model.dimensions, model.size})))
        raise InvalidParameter(f"`{name}` must be one of {known}, the sizes that the model has. Given: {given}")


def _token_ids(request: EmbeddingRequest, model: EmbeddingModel, tokenizer: Tokenizer) -> list[int]:
    most = model.max_length if request.truncate == AS_MANY_AS_FIT else request.truncate
    side = request.truncation_side or ("left" if tokenizer.truncation_side == "left" else "right")
    if not isinstance(request.text, str):
        _check_ids(request, request.text, tokenizer)
        return request.text if most is None else _cut(request.text, most, side)
    text = request.text.lower() if model.lower_case else request.text
    ids = tokenizer.encode(text, request.add_special_tokens)
    if most is None or len(ids) <= most:
        return ids
    return _cut_between(ids, tokenizer.encode(text, add_special_tokens=False), most, side)


def _check_ids(request: EmbeddingRequest, ids: list[int], tokenizer: Tokenizer) -> None:
    last = tokenizer.vocabulary_size - 1
    for token_id in ids:
        if not 0 <= token_id <= last:
            raise InvalidParameter(
                f"`{request.name}` must contain token ids from 0 to {last}, those of the model's own tokenizer. "
                f"Given: {token_id}"
            )


def _cut(ids: list[int], most: int, side: Side) -> list[int]:
    if len(ids) <= most:
        return ids
    return ids[:most] if side == "right" else ids[len(ids) - most :]


def _cut_between(ids: list[int], own: list[int], most: int, side: Side) -> list[int]:
    """Truncate a text's tokens to `most`, including the special tokens around its `own` tokens, as transformers does.

    If the special tokens do not fit or are elsewhere, all tokens are treated alike.
    """
    around = len(ids) - len(own)
    for before in range(around + 1):
        if ids[before : before + len(own)] == own and most > around:
            return ids[:before] + _cut(own, most - around, side) + ids[before + len(own) :]
    return _cut(ids, most, side)
