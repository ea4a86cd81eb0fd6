"""The compilation of one guide, in a process that the system ends at its limits."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
from xgrammar import CompiledGrammar, GrammarCompiler, GrammarMatcher, TokenizerInfo

from lmi_core.errors import InvalidParameter
from lmi_core.forks.calls import NO_MEMORY
from lmi_core.generation.structural_tag import grammar_mistake
from lmi_plugins.torch_engine.guides.grammars import RULE, choice_grammar, compile_guide
from lmi_plugins.torch_engine.guides.isolated.compile_process import Engine
from lmi_plugins.torch_engine.guides.isolated.guidance import guidance_matcher
from lmi_plugins.torch_engine.guides.isolated.trial import (
    STEPS,
    STEPS_FOR_VLLM,
    Lengths,
    Matcher,
    token_lengths,
    try_masks,
)
from lmi_plugins.torch_engine.messages.requests import Guide, GuideLimits


def prepare(tokenizer: bytes) -> Callable[[Guide, GuideLimits, Engine], tuple[str, str]]:
    """Return the function that compiles guides for a model."""
    torch.set_num_threads(1)
    info = TokenizerInfo.deserialize_json(tokenizer.decode())
    return CompileJob(info, token_lengths(info.decoded_vocab)).run


@dataclass(frozen=True)
class CompileJob:
    """The data common to all guides of a model."""

    tokenizer: TokenizerInfo
    lengths: Lengths

    def run(self, guide: Guide, limits: GuideLimits, engine: Engine) -> tuple[str, str]:
        """Return a grammar in xgrammar's serialized form ("" for vLLM), and the reason if the guide is refused."""
        try:
            compiler = GrammarCompiler(self.tokenizer, max_threads=1, cache_enabled=False)
            if engine == "torch":
                return self._compile(compiler, guide, limits), ""
            self._try_for_vllm(compiler, guide, limits, engine)
        except InvalidParameter as refusal:
            return "", refusal.message
        return "", ""

    def _compile(self, compiler: GrammarCompiler, guide: Guide, limits: GuideLimits) -> str:
        try:
            compiled = compile_guide(compiler, guide)
            try_masks(partial(GrammarMatcher, compiled), self.lengths, limits.mask_seconds, STEPS)
        # The last two come from malformed schemas
        except (RuntimeError, ValueError, TypeError, AttributeError) as error:
            raise _mistake(guide, error) from None
        return compiled.serialize_json()

    def _try_for_vllm(self, compiler: GrammarCompiler, guide: Guide, limits: GuideLimits, engine: Engine) -> None:
        """Try a guide for vLLM, which compiles it itself and reports mistakes, except those in structural tags.

        It may pass guides that xgrammar refuses to llguidance.
        """
        matcher: Callable[[], Matcher] | None = None
        if engine == "guidance":
            matcher = guidance_matcher(self.tokenizer, guide)
        try:
            matcher = matcher or partial(GrammarMatcher, _compile_as_vllm(compiler, guide))
        except (RuntimeError, ValueError, TypeError, AttributeError, KeyError) as error:
            if guide.kind == "structural_tag" or NO_MEMORY in str(error):
                raise _mistake(guide, error) from None
            matcher = guidance_matcher(self.tokenizer, guide)
        try:
            if matcher is not None:
                try_masks(matcher, self.lengths, limits.mask_seconds, STEPS_FOR_VLLM)
        except (RuntimeError, ValueError) as error:
            raise _mistake(guide, error) from None


def _compile_as_vllm(compiler: GrammarCompiler, guide: Guide) -> CompiledGrammar:
    """Return the grammar that vLLM makes; raise RuntimeError, ValueError, TypeError, AttributeError or KeyError."""
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


def _mistake(guide: Guide, error: Exception) -> Exception:
    """Return an error for the author of a guide, unless memory ran out."""
    if NO_MEMORY in str(error):
        return error
    return InvalidParameter(f"`guided_{guide.kind}` cannot be used: {grammar_mistake(error)}")
