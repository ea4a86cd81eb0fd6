"""The interface between text and token ids, for readers of requests and for engines."""

from abc import ABC, abstractmethod
from typing import Any, NamedTuple

from lmi_core.generation.chat import Chat


class Detokenizer(ABC):
    """An incremental decoder of one sequence's token ids."""

    @abstractmethod
    def step(self, token_id: int) -> str:
        """Return the characters that this id completes; "" inside a character, and for special tokens."""


class PairPiece(NamedTuple):
    """A special token of a pair of texts, or the place of one of the texts."""

    token_id: int | None  # None: the position of `sequence`
    sequence: int  # 0 or 1: which text; 0 for a special token
    token_type: int


class PairTemplate(NamedTuple):
    """How a tokenizer puts two texts together."""

    pieces: tuple[PairPiece, ...] = (PairPiece(None, 0, 0), PairPiece(None, 1, 0))
    has_types: bool = False  # whether the model uses token types


class Tokenizer(ABC):
    """A backend's tokenizer, safe to use from several threads."""

    truncation_side: str = "right"  # the side that is cut off if a request asks for truncation

    def prepare(self) -> None:  # noqa: B027 -- need not be overridden
        """Do work that would delay other requests at the first long text; called in a thread when a model is loaded."""

    @property
    @abstractmethod
    def vocabulary_size(self) -> int:
        """The exclusive upper bound of token ids."""

    @property
    def eos_token_id(self) -> int | None:
        """The id of the token that ends a text, or None if there is no such token."""
        return None

    @abstractmethod
    def encode(self, text: str, add_special_tokens: bool = True) -> list[int]:
        """Return the ids of a prompt, with the model's special tokens around it if requested."""

    def pair_template(self) -> PairTemplate:
        """Return how two texts are put together. Raise InvalidParameter if that is unknown."""
        return PairTemplate()

    def min_tokens(self, text: str) -> int:
        """Return a lower bound of the number of a text's tokens, without tokenizing it; 0 if unknown."""
        return 0

    @abstractmethod
    def decode(self, token_ids: list[int], skip_special_tokens: bool = True) -> str:
        """Return the text of the ids; special tokens are skipped by default."""

    @abstractmethod
    def detokenizer(self, prompt_ids: list[int]) -> Detokenizer:
        """Return a decoder of a sequence that continues these ids; its first word keeps the leading space."""

    @abstractmethod
    def token_bytes(self, token_id: int) -> bytes:
        """Return the token's bytes, which may be part of a character."""

    def token_id(self, token: str) -> int | None:
        """Return the id of this token in the vocabulary, or None."""
        return None

    def token_name(self, token_id: int) -> str:
        """Return the token's name in the vocabulary, which may encode spaces and bytes."""
        return self.token_bytes(token_id).decode(errors="replace")

    def configuration(self) -> dict[str, Any]:
        """Return the contents of `tokenizer_config.json`: the class, the special tokens, and so on."""
        return {"tokenizer_class": type(self).__name__}

    @abstractmethod
    def chat_template(self, with_tools: bool) -> str | None:
        """Return the model's own template, or None. Some models have a separate template for chats with tools."""

    @abstractmethod
    def render_chat(self, chat: Chat, template: str) -> str:
        """Return the prompt for the next message. Raise InvalidPayload if the template rejects the chat."""
