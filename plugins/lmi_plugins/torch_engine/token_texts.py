"""Writes the tokens of sequences, in the way that their requests ask for."""

from collections.abc import Callable

from lmi_core.generation import Token
from lmi_core.huggingface_tokenizer import HuggingFaceTokenizer
from lmi_core.token_stream import TokenStream
from lmi_plugins.torch_engine.messages import SamplingParameters
from lmi_plugins.torch_engine.sequence import Likeliest, Sequence


class TokenTexts:
    def __init__(self, tokenizer: HuggingFaceTokenizer, end_ids: frozenset[int], vocabulary: int) -> None:
        self._tokenizer = tokenizer
        self._end_ids = end_ids
        self._special_ids = end_ids | tokenizer.special_ids
        self._vocabulary = vocabulary  # ids beyond it stand for a soft prompt, and have no text

    def stream(self, prompt_ids: list[int], parameters: SamplingParameters) -> TokenStream:
        """For what a request generates."""
        return TokenStream(
            self._tokenizer.detokenizer([i for i in prompt_ids if i < self._vocabulary]),
            parameters.stop_sequences,
            self._special_ids,
            stop_token_sequences=parameters.stop_token_sequences,
            include_stop=parameters.include_stop,
            special_text=None if parameters.skip_special_tokens else self._special_text(parameters),
            spaces_between_special_tokens=parameters.spaces_between_special_tokens,
        )

    def prefill(self, sequence: Sequence) -> list[Token] | None:
        """The prompt's tokens, with the first step, if they were asked for."""
        if sequence.started or not sequence.parameters.prompt_log_probs:
            return None
        stream = TokenStream(self._tokenizer.detokenizer([]), special_ids=self._special_ids)
        log_probs = [None, *sequence.prompt_log_probs]
        top_tokens: list[Likeliest | None] = [None, *sequence.prompt_top_tokens]
        top_tokens += [None] * (len(log_probs) - len(top_tokens))  # where none were asked for
        return [
            token
            for token_id, log_prob, likeliest in zip(sequence.prompt_ids, log_probs, top_tokens, strict=True)
            for token in stream.push(token_id, log_prob, self.top_tokens(likeliest))
        ]

    def top_tokens(self, likeliest: Likeliest | None) -> list[Token] | None:
        """Each with a text of its own, which may be a part of a character."""
        if likeliest is None:
            return None
        return [Token(i, self._text(i), log_prob, i in self._special_ids) for i, log_prob in likeliest]

    def _special_text(self, parameters: SamplingParameters) -> Callable[[int], str]:
        hidden = frozenset() if parameters.ignore_end or parameters.include_stop else self._end_ids
        return lambda token_id: "" if token_id in hidden else self._text(token_id)

    def _text(self, token_id: int) -> str:
        return self._tokenizer.token_bytes(token_id).decode(errors="replace")
