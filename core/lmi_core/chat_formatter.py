"""The interface of formatters that write answers to chats."""

from collections.abc import Callable
from dataclasses import dataclass

from lmi_core.formatter import OutputFormatter
from lmi_core.generation.tokenizer import Tokenizer
from lmi_core.parsing.reasoning.reader import Reasoning
from lmi_core.parsing.tool_calls.parser import ToolCallParser


@dataclass(frozen=True, slots=True)
class ChatAnswer:
    """The settings that the handler of a chat passes to the formatter of its answer."""

    response_id: str
    model: str
    tokenizer: Tokenizer
    log_probs: bool = False
    # Makes a parser for one sequence; None if all text is content
    tool_calls: Callable[[], ToolCallParser] | None = None
    named_tool: bool = False  # whether the client requires one function by name
    older_calls: bool = False  # write a call as `function_call`; there is at most one
    echo: str = ""  # text to write before the generated content
    include_usage: bool = False  # report the usage at the end of a stream
    continuous_usage: bool = False  # report the usage in each chunk, too
    reasoning: Reasoning | None = None  # None if reasoning is part of the content
    include_reasoning: bool = True  # whether the answer includes the reasoning
    token_ids_as_text: bool = False  # write `token_id:N` for a token in log probabilities
    # Fields that only OpenAI's format has:
    fingerprint: str | None = None  # the fingerprint of the model's configuration
    token_ids: bool = False  # include the tokens' ids in each choice
    prompt_token_ids: bool = False
    prompt_text: bool = False
    prompt_log_probs: int | None = None  # the number of top log probs per prompt token; None means no log probs


class ChatFormatter(OutputFormatter):
    """A writer of the answer to one chat."""

    def __init__(self, answer: ChatAnswer) -> None:
        self.chat = answer
