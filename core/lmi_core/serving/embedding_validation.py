"""Validation of embedding requests against the model: EmbeddingRequest to ValidEmbedding."""

import logging
from collections.abc import Mapping, Sequence
from typing import Any

from lmi_core.backend import Backend
from lmi_core.embedding_backend import EmbeddingModel, require_embeddings, require_scores
from lmi_core.errors import ContextLengthExceeded, InvalidParameter
from lmi_core.generation.chat import Chat
from lmi_core.generation.embedding_request import EmbeddingRequest, Side, ValidEmbedding
from lmi_core.generation.tokenizer import Tokenizer
from lmi_core.host.off_loop import run_off_loop

logger = logging.getLogger(__name__)

AS_MANY_AS_FIT = -1  # a value of `truncate`: keep as much as fits
CHARACTERS_PER_TEXT = 100  # take as long as the fixed cost of each text


async def validate_embeddings(
    requests: Sequence[EmbeddingRequest], backend: Backend[Any], model_name: str, template: str | None
) -> list[ValidEmbedding]:
    """Validate the requests against the backend; long texts are tokenized outside the event loop.

    `template`, if any, joins the texts of pairs. Raise InvalidParameter, or ModelNotFound for a model without the
    requested capability.
    """
    scores = any(request.pair is not None for request in requests)
    model = (require_scores if scores else require_embeddings)(backend, model_name)

    def validate() -> list[ValidEmbedding]:
        return [validate_embedding(request, model, backend.tokenizer, template) for request in requests]

    per_text = CHARACTERS_PER_TEXT + (len(template or "") if scores else 0)
    size = sum(len(request.text) + len(request.pair or "") + per_text for request in requests)
    return await run_off_loop(size, validate)


def validate_embedding(
    request: EmbeddingRequest, model: EmbeddingModel, tokenizer: Tokenizer, template: str | None = None
) -> ValidEmbedding:
    """Return the validated request.

    Raise InvalidParameter or ContextLengthExceeded with the field, its bound and the given value.
    """
    _check_dimensions(request, model)
    token_types = None
    if request.pair is None or model.joins_pairs or template is not None:
        prompt_ids = _token_ids(request, model, tokenizer, template)
    else:
        prompt_ids, token_types = _pair_ids(request, request.pair, model, tokenizer)
    if not prompt_ids:
        raise InvalidParameter(f"`{request.name}` must contain at least one token. Given: 0")
    longest = min(model.max_length, request.max_tokens or model.max_length)
    if len(prompt_ids) > longest:
        raise ContextLengthExceeded(f"`{request.name}` must be at most {longest} tokens long. Given: {len(prompt_ids)}")
    return ValidEmbedding(
        prompt_ids, request.dimensions, request.normalize, request.adapter, request.cache_salt, token_types
    )


def _check_dimensions(request: EmbeddingRequest, model: EmbeddingModel) -> None:
    given, name = request.dimensions, request.names.get("dimensions", "dimensions")
    if given is None or given == model.size:
        return
    if model.dimensions == ():
        raise InvalidParameter(
            f"`{name}` must be omitted or {model.size}, the size of this model's vectors: it is not declared as a "
            f"matryoshka model, whose vectors can be truncated. Given: {given}"
        )
    if model.dimensions is None and not 1 <= given <= model.size:
        raise InvalidParameter(f"`{name}` must be from 1 to {model.size}, the size of the vectors. Given: {given}")
    if model.dimensions is not None and given not in model.dimensions:
        known = ", ".join(map(str, sorted({*model.dimensions, model.size})))
        raise InvalidParameter(f"`{name}` must be one of {known}, the sizes that the model has. Given: {given}")


def _token_ids(
    request: EmbeddingRequest, model: EmbeddingModel, tokenizer: Tokenizer, template: str | None
) -> list[int]:
    most, side = _truncation(request, model, tokenizer)
    if not isinstance(request.text, str):
        last = tokenizer.vocabulary_size - 1
        for token_id in request.text:
            if not 0 <= token_id <= last:
                raise InvalidParameter(
                    f"`{request.name}` must contain token ids from 0 to {last}, those of the model's own tokenizer; "
                    f"{token_id} is out of vocabulary"
                )
        return request.text if most is None else _truncate(request.text, most, side)
    text = _cut(request.text, request.text_limits[0], tokenizer)
    if request.pair is not None:
        second = _cut(request.pair, request.text_limits[1], tokenizer)
        text = (
            text + second
            if template is None
            else _joined(text, second, request.template_arguments, tokenizer, template)
        )
    if model.lower_case:
        text = text.lower()
    ids = tokenizer.encode(text, request.add_special_tokens)
    if most is None or len(ids) <= most:
        return ids
    return _truncate_between(ids, tokenizer.encode(text, add_special_tokens=False), most, side)


def _cut(text: str, limit: int, tokenizer: Tokenizer) -> str:
    """Return the beginning of a text, of at most `limit` tokens unless that is 0."""
    ids = tokenizer.encode(text, add_special_tokens=False) if limit else []
    return tokenizer.decode(ids[:limit]) if len(ids) > limit else text


def _joined(first: str, second: str, arguments: Mapping[str, Any], tokenizer: Tokenizer, template: str) -> str:
    """Return the texts of a pair as one text; vLLM's templates call them messages of these roles."""
    messages = [{"role": "query", "content": first}, {"role": "document", "content": second}]
    chat = Chat(messages, template_arguments=arguments, add_generation_prompt=False)
    return tokenizer.render_chat(chat, template)


def template_of_pairs(model: str, configured: str | None, tokenizer: Tokenizer) -> str | None:
    """Return the configured template if it joins pairs; one for chats may write neither text, or refuse them."""
    if configured is None:
        return None
    try:
        text = _joined("one", "two", {}, tokenizer, configured)
    except Exception:  # whatever a template raises
        text = ""
    if "one" in text and "two" in text:
        return configured
    logger.warning(
        "model %s: option.chat_template is ignored: it does not write the texts of pairs, whose roles are `query` and "
        "`document`",
        model,
    )
    return None


def _truncation(request: EmbeddingRequest, model: EmbeddingModel, tokenizer: Tokenizer) -> tuple[int | None, Side]:
    most = model.max_length if request.truncate == AS_MANY_AS_FIT else request.truncate
    return most, request.truncation_side or ("left" if tokenizer.truncation_side == "left" else "right")


def _pair_ids(
    request: EmbeddingRequest, second: str, model: EmbeddingModel, tokenizer: Tokenizer
) -> tuple[list[int], list[int] | None]:
    """Return the tokens of a pair and their types, if the model uses them."""
    assert isinstance(request.text, str), request.name
    template = tokenizer.pair_template()
    texts = [tokenizer.encode(text, add_special_tokens=False) for text in (request.text, second)]
    texts = [ids[:limit] if limit else ids for ids, limit in zip(texts, request.text_limits, strict=True)]
    most, side = _truncation(request, model, tokenizer)
    if most is not None:
        room = max(0, most - sum(piece.token_id is not None for piece in template.pieces))
        lengths = _longest_first(len(texts[0]), len(texts[1]), room)
        texts = [_truncate(ids, length, side) for ids, length in zip(texts, lengths, strict=True)]
    prompt_ids: list[int] = []
    types: list[int] = []
    for piece in template.pieces:
        ids = texts[piece.sequence] if piece.token_id is None else [piece.token_id]
        prompt_ids += ids
        types += [piece.token_type] * len(ids)
    return prompt_ids, types if template.has_types else None


def _longest_first(first: int, second: int, room: int) -> tuple[int, int]:
    """Return how many tokens of each text are kept, as with transformers' truncation `longest_first`."""
    if first + second <= room:
        return first, second
    shorter = min(first, second)
    longer = max(shorter, room - shorter)
    if shorter + longer > room:
        shorter, longer = room // 2, room - room // 2
    return (longer, shorter) if first > second else (shorter, longer)


def _truncate(ids: list[int], most: int, side: Side) -> list[int]:
    if len(ids) <= most:
        return ids
    return ids[:most] if side == "right" else ids[len(ids) - most :]


def _truncate_between(ids: list[int], own: list[int], most: int, side: Side) -> list[int]:
    """Truncate a text's tokens to `most`, including the special tokens around its `own` tokens, as transformers does.

    If the special tokens do not fit or are elsewhere, all tokens are treated alike.
    """
    around = len(ids) - len(own)
    for before in range(around + 1):
        if ids[before : before + len(own)] == own and most > around:
            return ids[:before] + _truncate(own, most - around, side) + ids[before + len(own) :]
    return _truncate(ids, most, side)
