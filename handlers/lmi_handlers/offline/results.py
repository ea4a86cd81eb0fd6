"""The results of generation without a server."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lmi_core.generation.output import FinishReason, GeneratedSequence, GenerationOutput, Token, Usage


@dataclass(frozen=True, slots=True)
class Completion:
    """The output for one prompt: the text of the best sequence, and all sequences."""

    text: str
    tokens: Sequence[Token]
    finish_reason: FinishReason
    usage: Usage
    sequences: Sequence[GeneratedSequence]  # one sequence, or as many as the parameter `n` asks for

    def __str__(self) -> str:
        return self.text

    @classmethod
    def of(cls, output: GenerationOutput) -> "Completion":
        """Return the completion of a finished call with one prompt."""
        best = output.best_sequence
        assert best.finish_reason is not None
        return cls(output.full_text(best), best.tokens, best.finish_reason, output.usage, output.sequences)


@dataclass(frozen=True, slots=True)
class TextPiece:
    """The part of a text that one step added: some tokens, and the finish reason at the end."""

    text: str
    tokens: Sequence[Token]
    finish_reason: FinishReason | None = None
    sequence_index: int = 0

    def __str__(self) -> str:
        return self.text

    @classmethod
    def of(cls, output: GenerationOutput) -> "TextPiece":
        """Return the part that the latest step added."""
        step = output.step
        return cls(output.delta, tuple(step.tokens), step.finish_reason, step.sequence_index)


@dataclass(frozen=True, slots=True)
class ChatReply:
    """A model's message in a chat; append `message` to the messages of the next request."""

    text: str
    finish_reason: str  # OpenAI's: `stop`, `length` or `tool_calls`
    usage: Usage
    reasoning: str | None
    tool_calls: Sequence[Mapping[str, Any]]  # the calls, in OpenAI's form
    message: dict[str, Any]

    def __str__(self) -> str:
        return self.text

    @classmethod
    def of(cls, answer: Mapping[str, Any]) -> "ChatReply":
        """Return the first choice of an answer in OpenAI's form."""
        choice = answer["choices"][0]
        message, usage = choice["message"], answer["usage"]
        return cls(
            text=message.get("content") or "",
            finish_reason=choice["finish_reason"],
            usage=Usage(usage["prompt_tokens"], usage["completion_tokens"]),
            reasoning=message.get("reasoning"),
            tool_calls=message.get("tool_calls") or (),
            message={name: value for name, value in message.items() if value is not None},
        )
