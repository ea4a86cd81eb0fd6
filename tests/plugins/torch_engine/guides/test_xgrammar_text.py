"""Tests that fail when xgrammar changes its printed grammars or messages."""

import pytest
from xgrammar import Grammar

from lmi_core.generation.structural_tag import SOURCE_PLACE, grammar_mistake
from lmi_plugins.torch_engine.guides.grammars import CHARACTERS, JSON_CHARACTERS, json_grammar

BOUNDED = '{"type": "string", "minLength": 2, "maxLength": 9}'


def test_bounded_texts_are_printed_with_the_range_that_is_replaced() -> None:
    assert CHARACTERS in str(Grammar.from_json_schema(BOUNDED))
    grammar = json_grammar(BOUNDED)
    assert CHARACTERS not in grammar
    assert JSON_CHARACTERS in grammar
    Grammar.from_ebnf(grammar)


def test_unbounded_texts_are_not_printed_with_it() -> None:
    assert CHARACTERS not in str(Grammar.from_json_schema('{"type": "string"}'))


def test_messages_begin_with_a_line_of_the_source() -> None:
    with pytest.raises(RuntimeError) as raised:
        Grammar.from_ebnf("root ::= other")
    assert SOURCE_PLACE.match(str(raised.value)), raised.value
    assert not SOURCE_PLACE.match(grammar_mistake(raised.value))
    assert "other" in grammar_mistake(raised.value)
