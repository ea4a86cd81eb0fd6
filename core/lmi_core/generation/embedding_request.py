"""A request for a text's vector or a pair's score, before and after validation against the model."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

Side = Literal["left", "right"]


@dataclass(frozen=True, slots=True)
class EmbeddingRequest:
    """A text to embed, or a pair of texts to score, as parsed by a dialect, not validated yet."""

    text: str | list[int]  # text or token ids
    name: str  # the client's name for this text in error messages, such as `input.3`
    add_special_tokens: bool = True  # if it is a text
    dimensions: int | None = None  # numbers in the vector; None: the model's number
    normalize: bool | None = None  # normalize vectors, or activate scores; None: the model's default
    truncate: int | None = None  # maximum tokens, including those that the model adds; None: do not truncate
    truncation_side: Side | None = None  # which end is cut off; None: the tokenizer's default
    names: Mapping[str, str] = field(default_factory=dict)  # the client's names of these fields, for error messages
    adapter: str | None = None  # None: the base model
    cache_salt: str | None = None  # computed results are shared only with requests that have the same salt
    text_limits: tuple[int, int] = (0, 0)  # maximum tokens of each text of a pair; 0: no limit
    pair: str | None = None  # the text that `text` is scored against; None: `text` is embedded


@dataclass(frozen=True, slots=True)
class ValidEmbedding:
    """A request that the backend can serve unchanged, created only by `lmi_core.serving.embedding_validation`."""

    prompt_ids: list[int]
    dimensions: int | None = None
    normalize: bool | None = None
    adapter: str | None = None
    cache_salt: str | None = None
    token_types: list[int] | None = None  # for models that distinguish the two texts of a pair by them
