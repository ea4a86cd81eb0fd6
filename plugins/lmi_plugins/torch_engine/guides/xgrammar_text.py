"""The text of xgrammar's grammars, which must be changed, because it has no option for the characters of strings.

In a printed grammar, the strings of JSON whose length is bounded may contain control characters, which JSON does not
allow, and halves of surrogate pairs, which text cannot contain; xgrammar's unbounded strings exclude both. The range is
in
https://github.com/mlc-ai/xgrammar/blob/main/cpp/json_schema_converter.cc
"""

from xgrammar import Grammar

CHARACTERS = r"[^\"\\\r\n]"
JSON_CHARACTERS = r"[ !#-\[\]-\ud7ff\ue000-\U0010ffff]"


def json_grammar(schema: str, max_blanks: int) -> str:
    """Return the grammar of a JSON schema, as xgrammar's EBNF, restricted to valid texts; raise RuntimeError."""
    grammar = str(Grammar.from_json_schema(schema, max_whitespace_cnt=max_blanks))
    return grammar.replace(CHARACTERS, JSON_CHARACTERS)
