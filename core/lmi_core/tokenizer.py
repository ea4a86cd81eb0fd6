"""Text to token ids and back, for the side that reads requests and for the engines that write answers."""

from abc import ABC, abstractmethod

from lmi_core.chats.chat import Chat


class Detokenizer(ABC):
    """Turns one sequence's ids into text as they come."""

    @abstractmethod
    def step(self, token_id: int) -> str:
        """Return the text that this id completes: whole characters only, so "" within one. Special tokens have none."""


class Tokenizer(ABC):
    """Belongs to a backend; is safe to use from several threads."""

    truncation_side: str = "right"  # where texts that are too long are cut, by those who ask for that

    @property
    @abstractmethod
    def vocabulary_size(self) -> int:
        """Every id is below this."""

    @abstractmethod
    def encode(self, text: str, add_special_tokens: bool = True) -> list[int]:
        """Return the ids of a prompt, with the special tokens that the model expects around it."""

    @abstractmethod
    def decode(self, token_ids: list[int]) -> str:
        """Return the text of the ids, special tokens left out."""

    @abstractmethod
    def detokenizer(self, prompt_ids: list[int]) -> Detokenizer:
        """Return one for the sequence that goes on from these ids: the first word keeps the blank before it."""

    @abstractmethod
    def token_bytes(self, token_id: int) -> bytes:
        """Return what the token stands for, which may be a part of a character."""

    def token_id(self, token: str) -> int | None:
        """The id of the token that the vocabulary has by exactly this name; None where it has none."""
        return None

    @abstractmethod
    def chat_template(self, with_tools: bool) -> str | None:
        """Return the model's own template; some models have one of their own for chats with tools."""

    @abstractmethod
    def render_chat(self, chat: Chat, template: str) -> str:
        """Return the prompt that asks for the next message. Raise InvalidPayload if the template refuses the chat."""
