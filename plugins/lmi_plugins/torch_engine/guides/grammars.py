"""Grammars of guides, by xgrammar's compiler."""

import json
from typing import TYPE_CHECKING, Any

from lmi_core.parsing.reasoning.guide import Format, after_reasoning
from lmi_plugins.torch_engine.guides.json_schema import check_schema
from lmi_plugins.torch_engine.messages.requests import Guide

if TYPE_CHECKING:
    from xgrammar import CompiledGrammar, GrammarCompiler

RULE = "::="  # of EBNF; grammars without it are Lark's
MAX_BLANKS = 2  # in a row, between the parts of JSON: without a bound some models write nothing else
# In strings of bounded length, xgrammar allows control characters, which are invalid in JSON, and halves of surrogate
# pairs, which are invalid in text: https://github.com/mlc-ai/xgrammar/blob/main/cpp/json_schema_converter.cc
CHARACTERS = r"[^\"\\\r\n]"
JSON_CHARACTERS = r"[ !#-\[\]-\ud7ff\ue000-\U0010ffff]"
PLAIN = {"type", "json_schema", "style"}  # what a format may have that says no more than which schema


def compile_guide(compiler: "GrammarCompiler", guide: Guide) -> "CompiledGrammar":
    """Return the guide's grammar; raise RuntimeError, ValueError, TypeError or AttributeError if it has none."""
    if guide.reasoning is not None:
        return compiler.compile_structural_tag(after_reasoning(guide.reasoning, _as_format(guide)))
    if guide.kind == "structural_tag":
        return compiler.compile_structural_tag({"type": "structural_tag", "format": _as_format(guide)})
    if guide.kind == "regex":
        return compiler.compile_regex(str(guide.content))
    return compiler.compile_grammar(_grammar(guide))


def _as_format(guide: Guide) -> Format:
    """Return the guide as a format of structural tags; raise InvalidParameter, ValueError or RuntimeError."""
    if guide.kind == "structural_tag":
        form: Format = _with_json_grammars(json.loads(str(guide.content))["format"])
        return form
    if guide.kind == "regex":
        return {"type": "regex", "pattern": guide.content}
    return {"type": "grammar", "grammar": _grammar(guide)}


def _grammar(guide: Guide) -> str:
    """Return a guide other than a regular expression or structural tag as EBNF.

    Raise ValueError or RuntimeError if it is invalid.
    """
    content = guide.content
    if isinstance(content, list):
        return choice_grammar(content)
    if guide.kind == "json":
        check_schema(json.loads(content))
        return json_grammar(content)
    if RULE in content:
        return content
    from xgrammar import Grammar

    return str(Grammar.from_lark(content))


def json_grammar(schema: str) -> str:
    """Return a JSON schema as xgrammar's EBNF, restricted to valid texts; raise RuntimeError if it is invalid."""
    from xgrammar import Grammar

    return str(Grammar.from_json_schema(schema, max_whitespace_cnt=MAX_BLANKS)).replace(CHARACTERS, JSON_CHARACTERS)


def choice_grammar(texts: list[str]) -> str:
    """Return a grammar of these texts as xgrammar's EBNF, whose strings are written like JSON's."""
    return "root ::= " + " | ".join(json.dumps(text, ensure_ascii=False) for text in texts)


def _with_json_grammars(form: Any) -> Any:
    """Return the format with a grammar for each JSON schema in it. Raise ValueError for an unenforced keyword."""
    if isinstance(form, list):
        return [_with_json_grammars(each) for each in form]
    if not isinstance(form, dict):
        return form
    if form.get("type") != "json_schema":
        return {name: _with_json_grammars(value) for name, value in form.items()}
    schema = form.get("json_schema")
    check_schema(schema)
    if not isinstance(schema, dict) or form.get("style", "json") != "json" or form.keys() - PLAIN:
        return form
    return {"type": "grammar", "grammar": json_grammar(json.dumps(schema))}
