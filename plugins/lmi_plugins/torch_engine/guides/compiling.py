"""Compilation of guides, which constrain texts, into grammars over the model's tokens, with xgrammar."""

import threading
from functools import cached_property
from typing import TYPE_CHECKING

from lmi_core.errors import InvalidParameter, Overloaded
from lmi_core.forks.forked_function import Cancellation
from lmi_core.texts.huggingface_tokenizer import HuggingFaceTokenizer
from lmi_plugins.torch_engine.guides.compilation import Compilation, Compilations, guide_key, guide_size
from lmi_plugins.torch_engine.guides.grammar_cache import GrammarCache
from lmi_plugins.torch_engine.guides.grammar_matcher import Matcher
from lmi_plugins.torch_engine.guides.isolated.compile_process import CompileProcess, too_costly
from lmi_plugins.torch_engine.messages.requests import Guide, GuideLimits

if TYPE_CHECKING:
    from xgrammar import CompiledGrammar, TokenizerInfo

DEFAULT_LIMITS = GuideLimits()
MAX_STUCK = 4  # masks that were given up but are still being computed; with more, new guides are refused


class GuideCompiler:
    """A compiler in a separate process, so that an expensive guide affects only its own request.

    Use it from one thread. xgrammar is imported, and the process started, with the first guide.
    """

    def __init__(
        self,
        tokenizer: HuggingFaceTokenizer,
        vocabulary: int,
        eos_token_ids: frozenset[int],
        limits: GuideLimits = DEFAULT_LIMITS,
    ) -> None:
        own_end = tokenizer.pretrained.eos_token_id
        # A token ends a guided text even if the model's configuration names none.
        self.eos_token_ids = eos_token_ids or (frozenset() if own_end is None else frozenset([own_end]))
        self.limits = limits
        self.cache = GrammarCache()
        self._tokenizer = tokenizer
        self._vocabulary = vocabulary
        self.compilations = Compilations()
        self._lock = threading.Lock()
        self._process: CompileProcess | None = None
        self._stuck: list[threading.Thread] = []

    def submit(self, guide: Guide) -> Compilation:
        """Start compiling a guide, or join a running compilation of the same one.

        The future's exception is InvalidParameter, Overloaded or GenerationFailed.
        """
        key = guide_key(guide)
        if not self.cache.has(key) and self._takes_more():
            return self.compilations.submit(guide, lambda each: self.compile(each.guide, each.cancellation))
        compilation = Compilation(key, guide)
        self._complete(compilation)
        return compilation

    def compile(self, guide: Guide, cancellation: Cancellation | None = None) -> "CompiledGrammar":
        """Return the guide's grammar. Raise InvalidParameter if the guide is invalid or exceeds the limits."""
        if not self.eos_token_ids:
            raise InvalidParameter(f"`guided_{guide.kind}` requires a model with an end-of-sequence token")
        key = guide_key(guide)
        known = self.cache.get(key)
        if known is not None:
            return known
        if guide_size(guide) > self.limits.size:
            raise too_costly(guide, "size", self.limits)
        try:
            serialized = self._started().compile(guide, cancellation or Cancellation())
        except InvalidParameter as mistake:
            self.cache.refuse(key, mistake.message)
            raise
        from xgrammar import CompiledGrammar

        grammar = CompiledGrammar.deserialize_json(serialized, self._info)
        self.cache.keep(key, grammar)
        return grammar

    def matcher(self, compilation: Compilation, start: int) -> Matcher:
        """Return a matcher for a sequence generated from its token `start` on; raise the error of its compilation."""
        from xgrammar import GrammarMatcher

        def give_up(thread: threading.Thread) -> InvalidParameter:
            self._stuck.append(thread)
            error = too_costly(compilation.guide, "mask_seconds", self.limits)
            self.cache.refuse(compilation.key, error.message)
            return error

        matcher = GrammarMatcher(compilation.future.result())
        return Matcher(matcher, start, self.limits.mask_seconds, give_up)

    def _takes_more(self) -> bool:
        self._stuck = [thread for thread in self._stuck if thread.is_alive()]
        return len(self._stuck) < MAX_STUCK

    def _complete(self, compilation: Compilation) -> None:
        """Set the future of a guide that need not be compiled, or cannot be because none are accepted now."""
        try:
            known = self.cache.get(compilation.key)
            if known is None:
                raise Overloaded("Masks of earlier guides that took too long are still being computed: try again later")
            compilation.future.set_result(known)
        except (InvalidParameter, Overloaded) as error:
            compilation.future.set_exception(error)

    def _started(self) -> CompileProcess:
        with self._lock:
            if self._process is None:
                self._process = CompileProcess(lambda: self._info.serialize_json().encode(), self.limits)
            return self._process

    @cached_property
    def _info(self) -> "TokenizerInfo":
        from xgrammar import TokenizerInfo

        return TokenizerInfo.from_huggingface(
            self._tokenizer.pretrained, vocab_size=self._vocabulary, stop_token_ids=sorted(self.eos_token_ids)
        )
