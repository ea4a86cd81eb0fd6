"""Incremental decoders of token ids."""

from typing import TYPE_CHECKING

from lmi_core.tokenizer import Detokenizer

if TYPE_CHECKING:
    import tokenizers
    from tokenizers.decoders import DecodeStream
    from transformers import PreTrainedTokenizerBase

INCOMPLETE = "\ufffd"  # what decoders write for an incomplete character
PRIMING_TOKENS = 16  # prompt tokens to decode, enough to tell whether a word begins with a blank


class FastDetokenizer(Detokenizer):
    """The incremental decoder of tokenizers written in Rust."""

    def __init__(self, tokenizer: "tokenizers.Tokenizer", prompt_ids: list[int]) -> None:
        self._tokenizer = tokenizer
        self._stream = self._new_stream(prompt_ids[-PRIMING_TOKENS:])

    def step(self, token_id: int) -> str:
        try:
            return self._stream.step(self._tokenizer, token_id) or ""
        except Exception as error:  # tokenizers raises nothing narrower
            if "Invalid prefix" not in str(error):
                raise
            # This token changes how the text before it is written, but that was sent already: continue from here.
            self._stream = self._new_stream([])
            return self._stream.step(self._tokenizer, token_id) or ""

    @staticmethod
    def _new_stream(ids: list[int]) -> "DecodeStream":
        from tokenizers.decoders import DecodeStream

        return DecodeStream(ids=ids, skip_special_tokens=True)


class WholeTexts(dict[int, str]):
    """The texts of a byte-level vocabulary by id, each found at its first use; "" where it is no whole characters."""

    def __init__(self, tokenizer: "tokenizers.Tokenizer") -> None:
        super().__init__()
        self._tokenizer = tokenizer

    def __missing__(self, token_id: int) -> str:
        text = str(self._tokenizer.decode([token_id], skip_special_tokens=True))
        self[token_id] = text = "" if INCOMPLETE in text else text
        return text


class ByteLevelDetokenizer(Detokenizer):
    """The incremental decoder of vocabularies whose tokens are bytes, of which most are whole characters.

    Between characters the text of such a token is always the same, and is only looked up.
    """

    def __init__(self, tokenizer: "tokenizers.Tokenizer", prompt_ids: list[int], texts: WholeTexts) -> None:
        self._tokenizer = tokenizer
        self._texts = texts
        between = not prompt_ids or texts[prompt_ids[-1]]
        self._decoder = None if between else FastDetokenizer(tokenizer, prompt_ids)  # None: between characters

    def step(self, token_id: int) -> str:
        if self._decoder is None:
            if text := self._texts[token_id]:
                return text
            self._decoder = FastDetokenizer(self._tokenizer, [])
        if text := self._decoder.step(token_id):
            self._decoder = None
        return text


class SlowDetokenizer(Detokenizer):
    """The incremental decoder of tokenizers in Python, which decodes the last tokens with and without the new ones."""

    def __init__(self, tokenizer: "PreTrainedTokenizerBase", prompt_ids: list[int]) -> None:
        self._tokenizer = tokenizer
        self._ids = prompt_ids[-PRIMING_TOKENS:]
        self._settled = len(self._ids)  # number of ids whose text was returned

    def step(self, token_id: int) -> str:
        self._ids.append(token_id)
        before, text = self._decode(self._ids[: self._settled]), self._decode(self._ids)
        if text.endswith(INCOMPLETE) or len(text) <= len(before):
            return ""
        self._ids, self._settled = self._ids[self._settled :], len(self._ids) - self._settled
        return text[len(before) :]

    def _decode(self, ids: list[int]) -> str:
        return str(self._tokenizer.decode(ids, skip_special_tokens=True, clean_up_tokenization_spaces=False))
