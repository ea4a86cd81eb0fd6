import pytest

from lmi_core.generation.output import Token
from lmi_core.parsing.reasoning.formats import find_reasoning_format
from lmi_core.parsing.reasoning.parser import AnswerContext
from lmi_core.parsing.reasoning.reader import Reasoning, ReasoningReader
from lmi_plugins.backends.scripted import WordTokenizer


@pytest.fixture
def tokenizer() -> WordTokenizer:
    return WordTokenizer()


def reader(name: str, tokenizer: WordTokenizer) -> ReasoningReader:
    return Reasoning(find_reasoning_format(name), tokenizer, AnswerContext("assistant:")).new_reader()


def read(reader: ReasoningReader, tokens: list[Token]) -> tuple[str, str]:
    parts = [*map(reader.read, tokens), reader.finish()]
    return "".join(part.reasoning for part in parts), "".join(part.content for part in parts)


def test_special_tokens_that_are_markers(tokenizer: WordTokenizer) -> None:
    """Special tokens that are markers have no text in an answer."""
    texts = ["[THINK]", "So", "<pad>", ".", "[/THINK]", "Yes", "</s>"]
    tokens = [Token(tokenizer.id(text), "" if text[0] in "[<" else text, special=text[0] in "[<") for text in texts]
    mistral = reader("mistral", tokenizer)
    assert read(mistral, tokens) == ("So.", "Yes")
    assert mistral.num_tokens == 5  # all but the last two


@pytest.mark.parametrize(
    ("texts", "count"),
    [
        (["<think>", "So", "</think>", "Yes"], 3),
        (["<th", "ink>", "So", "</th", "ink>", "Yes"], 5),
        (["<think>So</think>Yes", "."], 1),
        (["<th", "in", " Yes"], 0),
        (["Yes", "<think>", "No"], 0),
        (["<think>", "So", "is"], 3),
    ],
)
def test_number_of_tokens(texts: list[str], count: int, tokenizer: WordTokenizer) -> None:
    """A token counts that any of the reasoning or its markers is in."""
    qwen = reader("qwen3", tokenizer)
    read(qwen, [Token(tokenizer.id(text), text) for text in texts])
    assert qwen.num_tokens == count
