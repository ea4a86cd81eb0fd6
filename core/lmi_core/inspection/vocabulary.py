"""Tokens of a tokenizer without embeddings in the model."""

from typing import NamedTuple

from lmi_core.texts.huggingface_tokenizer import HuggingFaceTokenizer


class TokensBeyond(NamedTuple):
    """The tokens without embeddings as text, and whether all of them were added to the vocabulary.

    Added tokens are common: many tokenizers have an unused padding token.
    """

    described: str
    only_added: bool


def tokens_beyond(tokenizer: HuggingFaceTokenizer, rows: int) -> TokensBeyond | None:
    """Return the tokens beyond a model's `rows` of embeddings, or None."""
    vocabulary: dict[str, int] = tokenizer.pretrained.get_vocab()
    beyond = {token_id: token for token, token_id in vocabulary.items() if token_id >= rows}
    if not beyond:
        return None
    first = min(beyond)
    described = (
        f"no embedding for {len(beyond)} of its tokens, from {first} ({beyond[first]!r}) on: the model has {rows}"
    )
    return TokensBeyond(described, beyond.keys() <= tokenizer.pretrained.added_tokens_decoder.keys())
