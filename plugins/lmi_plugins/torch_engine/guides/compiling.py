"""Compiles guides, which say what texts must be, into grammars over the model's tokens, with xgrammar."""

import json
import threading
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING

from lmi_core.chats.reasoning.guide import Format, after_reasoning
from lmi_core.engines.structural_tag import grammar_mistake
from lmi_core.errors import InvalidParameter
from lmi_core.texts.huggingface_tokenizer import HuggingFaceTokenizer
from lmi_plugins.torch_engine.guides.grammar_matcher import Matcher
from lmi_plugins.torch_engine.guides.json_schema import check_schema
from lmi_plugins.torch_engine.guides.structural_tags import with_json_grammars
from lmi_plugins.torch_engine.worker.messages import Guide

if TYPE_CHECKING:
    from xgrammar import CompiledGrammar, GrammarCompiler

THREADS = 2
CACHE_BYTES = 64 * 2**20  # of compiled grammars
MAX_BLANKS = 2  # in a row, between the parts of JSON: without a bound some models write nothing else


class GuideCompiler:
    """A compiler with threads of its own, so that only the request waits. xgrammar is imported with the first guide."""

    def __init__(self, tokenizer: HuggingFaceTokenizer, vocabulary: int, eos_token_ids: frozenset[int]) -> None:
        own_end = tokenizer.pretrained.eos_token_id
        # A guided text ends with a token, also where the model's own configuration names none.
        self.eos_token_ids = eos_token_ids or (frozenset() if own_end is None else frozenset([own_end]))
        self._tokenizer = tokenizer
        self._vocabulary = vocabulary
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="guide")
        self._lock = threading.Lock()
        self._compiler: GrammarCompiler | None = None

    def submit(self, guide: Guide) -> "Future[CompiledGrammar]":
        """Begin to compile a guide; the future's exception is InvalidParameter. Compiled grammars are kept."""
        return self._threads.submit(self.compile, guide)

    def compile(self, guide: Guide) -> "CompiledGrammar":
        """Return the guide's grammar; raise InvalidParameter if it has none."""
        if not self.eos_token_ids:
            raise InvalidParameter(f"`guided_{guide.kind}` requires a model with an end-of-sequence token")
        try:
            return self._compile(self._load(), guide)
        except (RuntimeError, ValueError, TypeError, AttributeError) as error:  # the last two: of a schema's own form
            raise InvalidParameter(f"`guided_{guide.kind}` cannot be used: {grammar_mistake(error)}") from None

    def matcher(self, grammar: "CompiledGrammar", start: int) -> Matcher:
        """Return a matcher for a sequence that is generated from its token `start` on."""
        from xgrammar import GrammarMatcher

        return Matcher(GrammarMatcher(grammar), start)

    def _compile(self, compiler: "GrammarCompiler", guide: Guide) -> "CompiledGrammar":
        if guide.reasoning is not None:
            return compiler.compile_structural_tag(after_reasoning(guide.reasoning, _as_format(guide)))
        if guide.kind == "structural_tag":
            return compiler.compile_structural_tag({"type": "structural_tag", "format": _as_format(guide)})
        if guide.kind == "regex":
            return compiler.compile_regex(str(guide.content))
        return compiler.compile_grammar(_grammar(guide))

    def _load(self) -> "GrammarCompiler":
        with self._lock:
            if self._compiler is None:
                from xgrammar import GrammarCompiler, TokenizerInfo

                tokenizer = TokenizerInfo.from_huggingface(
                    self._tokenizer.pretrained, vocab_size=self._vocabulary, stop_token_ids=sorted(self.eos_token_ids)
                )
                self._compiler = GrammarCompiler(tokenizer, max_threads=1, cache_limit_bytes=CACHE_BYTES)
            return self._compiler


def _as_format(guide: Guide) -> Format:
    """Return the guide as a format of structural tags; raise InvalidParameter, ValueError or RuntimeError."""
    if guide.kind == "structural_tag":
        form: Format = with_json_grammars(json.loads(str(guide.content))["format"], _json_grammar)
        return form
    if guide.kind == "regex":
        return {"type": "regex", "pattern": guide.content}
    return {"type": "grammar", "grammar": _grammar(guide)}


def _grammar(guide: Guide) -> str:
    """Return a guide that is no regular expression or structural tag as EBNF; raise ValueError or RuntimeError."""
    content = guide.content
    if isinstance(content, list):
        return choice_grammar(content)
    if guide.kind == "json":
        check_schema(json.loads(content))
        return _json_grammar(content)
    return content


def _json_grammar(schema: str) -> str:
    from lmi_plugins.torch_engine.guides.xgrammar_text import json_grammar

    return json_grammar(schema, MAX_BLANKS)


def choice_grammar(texts: list[str]) -> str:
    """Return a grammar of these texts as xgrammar's EBNF, whose strings are written as JSON's are."""
    return "root ::= " + " | ".join(json.dumps(text, ensure_ascii=False) for text in texts)
