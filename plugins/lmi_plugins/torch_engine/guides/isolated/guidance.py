"""llguidance, which vLLM uses for guides that xgrammar does not support, as far as trials need it."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from xgrammar import TokenizerInfo

from lmi_plugins.torch_engine.messages.requests import Guide

if TYPE_CHECKING:
    from llguidance import LLMatcher


class GuidanceMatcher:
    """A matcher of llguidance with the methods of xgrammar's matchers that a trial calls."""

    def __init__(self, matcher: "LLMatcher", fill: Callable[..., None]) -> None:
        """`fill` fills masks in numpy arrays."""
        self._matcher = matcher
        self._fill = fill
        self._raise_mistake()

    def fill_next_token_bitmask(self, bitmask: Any) -> None:
        """Fill a mask. Raise ValueError if one of llguidance's own limits is exceeded."""
        self._fill(self._matcher, bitmask.numpy(), 0)
        self._raise_mistake()

    def accept_token(self, token_id: int) -> None:
        self._matcher.consume_token(token_id)
        self._raise_mistake()

    def is_terminated(self) -> bool:
        return bool(self._matcher.is_stopped())

    def _raise_mistake(self) -> None:
        if self._matcher.is_error():
            raise ValueError(self._matcher.get_error().partition("\n")[0])


def guidance_matcher(info: TokenizerInfo, guide: Guide) -> Callable[[], GuidanceMatcher] | None:
    """Return a factory of matchers for a guide; None if llguidance refuses it, or is not installed."""
    try:
        from llguidance import LLMatcher, LLTokenizer, TokenizerWrapper, grammar_from
        from llguidance.numpy import fill_next_token_bitmask
    except ImportError:
        return None
    try:
        if guide.kind == "json":
            grammar = LLMatcher.grammar_from_json_schema(str(guide.content))
        else:
            grammar = grammar_from("regex" if guide.kind == "regex" else "grammar", str(guide.content))
        if LLMatcher.validate_grammar(grammar, None):
            return None
    except (ValueError, KeyError, TypeError):
        return None
    tokenizer = LLTokenizer(TokenizerWrapper(_Vocabulary(info)))
    return lambda: GuidanceMatcher(LLMatcher(tokenizer, grammar, log_level=0), fill_next_token_bitmask)


class _Vocabulary:
    """The tokens of a model, in the form that llguidance requires."""

    def __init__(self, info: TokenizerInfo) -> None:
        self.tokens = list(info.decoded_vocab)
        self.special_token_ids = list(info.special_token_ids)
        self.bos_token_id = None
        self.eos_token_id = next(iter(info.stop_token_ids), len(self.tokens) - 1)
        self._ids = {text: token_id for token_id, text in enumerate(self.tokens) if len(text) == 1}

    def __call__(self, text: bytes) -> list[int]:
        """Return one token for each byte of a text; llguidance calls this for the start of a forced text."""
        return [self._ids[bytes([each])] for each in text if bytes([each]) in self._ids]
