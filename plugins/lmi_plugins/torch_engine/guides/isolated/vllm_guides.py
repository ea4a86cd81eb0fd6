"""Compilation of guides in the forms that vLLM gives them."""

import json
from typing import TYPE_CHECKING

from lmi_plugins.torch_engine.guides.grammars import RULE, choice_grammar
from lmi_plugins.torch_engine.messages.requests import Guide

if TYPE_CHECKING:
    from xgrammar import CompiledGrammar, GrammarCompiler


def compile_as_vllm(compiler: "GrammarCompiler", guide: Guide) -> "CompiledGrammar":
    """Return the guide's grammar; raise RuntimeError, ValueError, TypeError, AttributeError or KeyError otherwise."""
    if isinstance(guide.content, list):
        return compiler.compile_grammar(choice_grammar(guide.content))
    match guide.kind:
        case "json":
            return compiler.compile_json_schema(guide.content)
        case "regex":
            return compiler.compile_regex(guide.content)
        case "structural_tag":
            return compiler.compile_structural_tag(json.loads(guide.content))
    return compiler.compile_grammar(guide.content) if RULE in guide.content else compiler.compile_lark(guide.content)
