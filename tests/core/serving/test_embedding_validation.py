"""What becomes of a request for a vector before the backend sees it."""

from typing import Any

import pytest

from lmi_core.embedding_backend import EmbeddingModel
from lmi_core.errors import ContextLengthExceeded, InvalidParameter
from lmi_core.generation.embedding_request import EmbeddingRequest
from lmi_core.serving.embedding_validation import AS_MANY_AS_FIT, validate_embedding
from lmi_plugins.backends.scripted import WordTokenizer

MODEL = EmbeddingModel(size=8, max_length=6)


class MarkedTokenizer(WordTokenizer):
    """A tokenizer with a token before a text, and one behind it, as BERT's."""

    def encode(self, text: str, add_special_tokens: bool = True) -> list[int]:
        own = super().encode(text)
        return [self.id("[CLS]"), *own, self.id("[SEP]")] if add_special_tokens else own


def words(text: str | list[int], tokenizer: WordTokenizer | None = None, **fields: Any) -> list[str]:
    tokenizer = tokenizer or MarkedTokenizer()
    request = EmbeddingRequest(text, "input", names={"truncate": "truncate_prompt_tokens"}, **fields)
    return [tokenizer.word(i).strip() for i in validate_embedding(request, MODEL, tokenizer).prompt_ids]


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, "[CLS] a b c [SEP]"),
        ({"add_special_tokens": False}, "a b c"),
        ({"truncate": 9}, "[CLS] a b c [SEP]"),
        ({"truncate": 4}, "[CLS] a b [SEP]"),
        ({"truncate": 4, "truncation_side": "left"}, "[CLS] b c [SEP]"),
        ({"truncate": 2, "truncation_side": "right"}, "[CLS] a"),
        ({"truncate": 2, "add_special_tokens": False, "truncation_side": "left"}, "b c"),
    ],
)
def test_truncation(fields: dict[str, Any], expected: str) -> None:
    assert words("a b c", **fields) == expected.split()


def test_as_many_tokens_as_fit() -> None:
    assert words("a b c d e f g", truncate=AS_MANY_AS_FIT) == ["[CLS]", "a", "b", "c", "d", "[SEP]"]


def test_the_tokenizer_s_own_side() -> None:
    tokenizer = MarkedTokenizer()
    tokenizer.truncation_side = "left"
    assert words("a b c", tokenizer, truncate=3) == ["[CLS]", "c", "[SEP]"]


def test_token_ids_are_taken_as_they_are() -> None:
    tokenizer = MarkedTokenizer()
    ids = WordTokenizer.encode(tokenizer, "a b c")
    assert words(ids, tokenizer) == ["a", "b", "c"]
    assert words(ids, tokenizer, truncate=2) == ["a", "b"]
    assert words(ids, tokenizer, truncate=2, truncation_side="left") == ["b", "c"]


def test_lower_case() -> None:
    model = EmbeddingModel(size=8, max_length=6, lower_case=True)
    tokenizer = WordTokenizer()
    valid = validate_embedding(EmbeddingRequest("Deep LEARNING", "input"), model, tokenizer)
    assert tokenizer.decode(valid.prompt_ids) == "deep learning"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a b c d e", "`input` must be at most 6 tokens long. Given: 7"),
        ([0] * 7, "`input` must be at most 6 tokens long. Given: 7"),
        ([], "`input` must contain at least one token. Given: 0"),
        ([5], "`input` must contain token ids from 0 to 0, those of the model's own tokenizer; 5 is out of vocabulary"),
        (
            [-1],
            "`input` must contain token ids from 0 to 0, those of the model's own tokenizer; -1 is out of vocabulary",
        ),
    ],
)
def test_wrong_inputs(text: str | list[int], message: str) -> None:
    tokenizer = MarkedTokenizer()
    tokenizer.id("[CLS]")
    expected = ContextLengthExceeded if "at most" in message else InvalidParameter
    with pytest.raises(expected) as error:
        words(text, tokenizer)
    assert error.value.message == message


@pytest.mark.parametrize(
    ("sizes", "given", "message"),
    [
        ((), 8, None),
        ((), 4, "`dimensions` must be omitted or 8, the size of this model's vectors"),
        ((2, 4), 4, None),
        ((2, 4), 8, None),
        ((2, 4), 3, "`dimensions` must be one of 2, 4, 8, the sizes that the model has. Given: 3"),
        (None, 3, None),
        (None, 9, "`dimensions` must be from 1 to 8, the size of the vectors. Given: 9"),
        (None, 0, "`dimensions` must be from 1 to 8, the size of the vectors. Given: 0"),
    ],
)
def test_dimensions(sizes: tuple[int, ...] | None, given: int, message: str | None) -> None:
    model = EmbeddingModel(8, 6, sizes)
    request = EmbeddingRequest("a", "input", dimensions=given)
    if message is None:
        assert validate_embedding(request, model, WordTokenizer()).dimensions == given
        return
    with pytest.raises(InvalidParameter) as error:
        validate_embedding(request, model, WordTokenizer())
    assert error.value.message.startswith(message)


def test_a_limit_of_its_own() -> None:
    request = EmbeddingRequest("a b c", "texts.0", max_tokens=2)
    with pytest.raises(ContextLengthExceeded, match="must be at most 2 tokens long"):
        validate_embedding(request, MODEL, WordTokenizer())
    longer = EmbeddingRequest("a b c", "texts.0", max_tokens=9)
    assert len(validate_embedding(longer, MODEL, WordTokenizer()).prompt_ids) == 3
