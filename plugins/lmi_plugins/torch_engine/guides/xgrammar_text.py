"""The text of xgrammar's grammars, which has to be changed, as it has no option for what they hold.

In a printed grammar, the strings of JSON whose length is bounded may have control characters, which JSON has not, and
halves of surrogate pairs, which no text has; xgrammar writes its unbounded strings without them. The range is in
https://github.com/mlc-ai/xgrammar/blob/main/cpp/json_schema_converter.cc
"""

from xgrammar import Grammar

CHARACTERS = r"[^\"\\\r\n]"
JSON_CHARACTERS = r"[ !#-\[\]-\ud7ff\ue000-\U0010ffff]"


def json_grammar(schema: str, max_blanks: int) -> str:
    """Return the grammar of a JSON schema, as xgrammar's EBNF, with only texts in it; raise RuntimeError."""
    grammar = str(Grammar.from_json_schema(schema, max_whitespace_cnt=max_blanks))
    return grammar.replace(CHARACTERS, JSON_CHARACTERS)
