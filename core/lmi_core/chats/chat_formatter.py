"""The seam to how the answer to a chat is written."""

from collections.abc import Callable
from dataclasses import dataclass

from lmi_core.chats.reasoning.reader import Reasoning
from lmi_core.chats.tool_calls import ToolCallParser
from lmi_core.formatter import OutputFormatter
from lmi_core.tokenizer import Tokenizer


@dataclass(frozen=True, slots=True)
class ChatAnswer:
    """What the handler of a chat tells the formatter of its answer."""

    response_id: str
    model: str
    tokenizer: Tokenizer
    log_probs: bool = False
    tool_calls: Callable[[], ToolCallParser] | None = None  # makes a parser for one sequence; None: all text is content
    named_tool: bool = False  # the client named the one function that is called
    older_calls: bool = False  # a call is written as `function_call`; there is one at most
    echo: str = ""  # the content's beginning, which was not generated
    include_usage: bool = False  # at the end of a stream
    continuous_usage: bool = False  # and in each of its chunks
    reasoning: Reasoning | None = None  # None: it is not told from the content
    include_reasoning: bool = True  # in the answer; otherwise it is left out
    token_ids_as_text: bool = False  # in log probabilities
    # What only OpenAI's form has a place for:
    token_ids: bool = False  # of each choice
    prompt_token_ids: bool = False
    prompt_text: bool = False
    prompt_log_probs: int | None = None  # None: none at all; otherwise how many of the likeliest


class ChatFormatter(OutputFormatter):
    """Writes the answer to one chat."""

    def __init__(self, answer: ChatAnswer) -> None:
        self.chat = answer
