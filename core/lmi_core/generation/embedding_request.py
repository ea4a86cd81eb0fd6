"""A request for a text's vector or a pair's score, before and after validation against the model."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

Side = Literal["left", "right"]


@dataclass(frozen=True, slots=True)
class EmbeddingRequest:
    """A text to embed, or a pair of texts to score, as parsed by a dialect, not validated yet."""

    text: str | list[int]  # or its token ids
    name: str  # the client's for this text, for messages: `input.3`
    add_special_tokens: bool = True  # around a text
    dimensions: int | None = None  # numbers in the vector; None: as many as the model's have
    normalize: bool | None = None  # a vector to a length of 1, a score by the activation; None: as the model does
    truncate: int | None = None  # most tokens of the text, those of the model around it included; None: as they are
    truncation_side: Side | None = None  # which end is cut off; None: as the tokenizer says
    names: Mapping[str, str] = field(default_factory=dict)  # the client's own names of these fields, for messages
    adapter: str | None = None  # None: the base model
    cache_salt: str | None = None  # what is computed is shared only with requests of the same salt
    text_limits: tuple[int, int] = (0, 0)  # most tokens of each text of a pair; 0: any number
    pair: str | None = None  # the text with which `text` is scored; None: `text` is embedded


@dataclass(frozen=True, slots=True)
class ValidEmbedding:
    """A request that the backend can serve unchanged, created only by `lmi_core.serving.embedding_validation`."""

    prompt_ids: list[int]
    dimensions: int | None = None
    normalize: bool | None = None
    adapter: str | None = None
    cache_salt: str | None = None
    token_types: list[int] | None = None  # of a pair, for models that distinguish its texts by them
