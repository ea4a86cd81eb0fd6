import json
from typing import Any

import jsonschema_rs
import pytest

from lmi_core.errors import InvalidParameter
from lmi_core.texts.huggingface_tokenizer import HuggingFaceTokenizer
from lmi_plugins.torch_engine.guides.compiling import GuideCompiler
from lmi_plugins.torch_engine.guides.grammars import choice_grammar
from lmi_plugins.torch_engine.messages.requests import Guide
from tests.plugins.torch_engine.tiny_models import VOCABULARY

SCHEMA: dict[str, Any] = {
    "$defs": {"tag": {"type": "object", "properties": {"id": {"type": "integer"}}, "required": ["id"]}},
    "type": "object",
    "properties": {
        "short": {"type": "string", "maxLength": 3},
        "long": {"type": "string", "minLength": 2, "maxLength": 1000},
        "free": {"type": "string"},
        "code": {"type": "string", "pattern": "^[a-z]{2}-[0-9]+$"},
        "day": {"type": "string", "format": "date"},
        "kind": {"enum": ['a"b', 3, None, "grüße"]},
        "tags": {"type": "array", "items": {"$ref": "#/$defs/tag"}, "minItems": 1},
        "size": {"anyOf": [{"type": "integer", "minimum": 5}, {"type": "null"}]},
    },
    "required": ["short", "long", "free", "code", "day", "kind", "tags", "size"],
}
VALID: dict[str, Any] = {
    "short": "üß🙂",
    "long": "x" * 900,
    "free": 'any\nthing "quoted" 東京',
    "code": "ab-12",
    "day": "2024-02-29",
    "kind": 'a"b',
    "tags": [{"id": -3}, {"id": 70}],
    "size": None,
}


@pytest.fixture(scope="module")
def compiler(tokenizer: HuggingFaceTokenizer) -> GuideCompiler:
    return GuideCompiler(tokenizer, VOCABULARY, frozenset([1]))


def accepts(compiler: GuideCompiler, guide: Guide, text: str | bytes) -> bool:
    from xgrammar import GrammarMatcher

    matcher = GrammarMatcher(compiler.compile(guide))
    return matcher.accept_string(text) and matcher.is_completed()


@pytest.mark.parametrize(
    "changed",
    [
        {},
        {"short": "abcd"},
        {"long": "x"},
        {"code": "AB-12"},
        {"day": "2024"},
        {"kind": "c"},
        {"kind": None},
        {"tags": []},
        {"tags": [{"id": "3"}]},
        {"size": 4},
        {"size": 5},
        {"more": 1},
    ],
)
def test_accepts_what_is_of_the_schema(compiler: GuideCompiler, changed: dict[str, Any]) -> None:
    value = VALID | changed
    valid = jsonschema_rs.is_valid(SCHEMA | {"additionalProperties": False}, value, validate_formats=True)
    guide = Guide("json", json.dumps(SCHEMA))
    assert accepts(compiler, guide, json.dumps(value, ensure_ascii=False)) == valid


@pytest.mark.parametrize("wrong", [b"\x12", b"\n", b'"', b"\xed\xa0\x80", b"\xe0\x80\x80", b"\xff"])
def test_bounded_texts_are_texts(compiler: GuideCompiler, wrong: bytes) -> None:
    guide = Guide("json", '{"type": "string", "maxLength": 9}')
    assert accepts(compiler, guide, b'"a%sb"' % "é東🙂\x7f".encode())
    assert not accepts(compiler, guide, b'"a%sb"' % wrong)


def test_choices_are_taken_as_they_are(compiler: GuideCompiler) -> None:
    choices = ['a "b"', "\\n", "line\nline\ttab\b\f\x01", "🙂 é", "a | b", "[a-z]", "$"]
    for choice in choices:
        assert accepts(compiler, Guide("choice", choices), choice)
    assert not accepts(compiler, Guide("choice", choices), "a")
    assert choice_grammar(["a", '"']) == 'root ::= "a" | "\\""'


@pytest.mark.parametrize(
    ("guide", "right", "wrong"),
    [
        (Guide("json", '{"type": "integer", "maximum": 20}'), "17", "27"),
        (Guide("regex", "[a-c]+"), "abc", "d"),
        (Guide("grammar", 'root ::= "a" | "b"'), "a", "c"),
        (Guide("grammar", 'start: word " " word\nword: /[ab]{2}/ // of two letters'), "ab ba", "ab b"),
        (Guide("choice", ["yes", "no"]), "no", "maybe"),
    ],
    ids=lambda value: value.kind if isinstance(value, Guide) else None,
)
def test_a_reasoning_before_the_guide_is_free(compiler: GuideCompiler, guide: Guide, right: str, wrong: str) -> None:
    begun = Guide(guide.kind, guide.content, ["", "</think>", "</thought>"])
    assert accepts(compiler, begun, f'Is 3 < 4? "{wrong}\n</think>\n\n{right}')
    assert accepts(compiler, begun, f"</thought>{right}")
    assert not accepts(compiler, begun, f"So </think>{wrong}")
    assert not accepts(compiler, begun, right)
    optional = Guide(guide.kind, guide.content, ["<think>", "</think>"])
    assert accepts(compiler, optional, f"\n<think>\n{wrong}</think>\n{right}")
    assert accepts(compiler, optional, right)
    assert not accepts(compiler, optional, f"So </think>{right}")


def test_a_model_without_an_end_cannot_be_guided(tokenizer: HuggingFaceTokenizer) -> None:
    class Endless:
        eos_token_id = None

    endless = HuggingFaceTokenizer(tokenizer.pretrained)
    endless.__dict__["pretrained"] = Endless()
    compiler = GuideCompiler(endless, VOCABULARY, frozenset())
    with pytest.raises(InvalidParameter, match="`guided_regex` requires a model with an end-of-sequence token"):
        compiler.compile(Guide("regex", "a"))


def test_the_tokenizers_end_serves_where_the_model_names_none(tokenizer: HuggingFaceTokenizer) -> None:
    assert GuideCompiler(tokenizer, VOCABULARY, frozenset()).eos_token_ids == {tokenizer.pretrained.eos_token_id}
    assert GuideCompiler(tokenizer, VOCABULARY, frozenset([7, 9])).eos_token_ids == {7, 9}
