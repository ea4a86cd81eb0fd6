"""A request for a text's vector or a pair's score, before and after validation against the model."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

Side = Literal["left", "right"]


@dataclass(frozen=True, slots=True)
class EmbeddingRequest:
    """A text to embed, or a pair of texts to score, as parsed by a dialect, not validated yet."""

    text: str | list[int]  # text or token ids
    name: str  # the client's name for this text in error messages, such as `input.3`
    add_special_tokens: bool = True  # add special tokens if the input is a text
    dimensions: int | None = None  # the size of the vector; None means the model's own
    normalize: bool | None = None  # normalize vectors, or activate scores; None means the model's default
    truncate: int | None = None  # maximum tokens, including those that the model adds; None means no limit
    truncation_side: Side | None = None  # the end that is cut off; None means the tokenizer's default
    names: Mapping[str, str] = field(default_factory=dict)  # the client's names of these fields, for error messages
    adapter: str | None = None  # the adapter to use; None means the base model
    cache_salt: str | None = None  # computed results are shared only with requests that have the same salt
    text_limits: tuple[int, int] = (0, 0)  # maximum tokens of each text of a pair; 0 means no limit
    pair: str | None = None  # the text that `text` is scored against; None if `text` is embedded
    template_arguments: Mapping[str, Any] = field(default_factory=dict)  # variables of the template that joins a pair
    max_tokens: int | None = None  # more tokens are an error; None means the model's maximum


@dataclass(frozen=True, slots=True)
class ValidEmbedding:
    """A request that the backend can serve unchanged, created only by `lmi_core.serving.embedding_validation`."""

    prompt_ids: list[int]
    dimensions: int | None = None
    normalize: bool | None = None
    adapter: str | None = None
    cache_salt: str | None = None
    token_types: list[int] | None = None  # the tokens' types, for models that distinguish texts of a pair
