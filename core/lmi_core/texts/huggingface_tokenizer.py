"""The tokenizer that comes with a model, as transformers loads it."""

import threading
from functools import cached_property
from typing import TYPE_CHECKING, Any, cast

from lmi_core.chats.chat import Chat
from lmi_core.chats.chat_template import REFUSED_BY_TEMPLATE
from lmi_core.errors import ConfigurationError, InvalidPayload
from lmi_core.texts.token_bytes import byte_level_bytes, is_byte_level, piece_bytes
from lmi_core.texts.tokenizer_configuration import tokenizer_configuration
from lmi_core.tokenizer import Detokenizer, Tokenizer

if TYPE_CHECKING:
    import tokenizers
    from tokenizers.decoders import DecodeStream
    from transformers import PreTrainedTokenizerBase

INCOMPLETE = "\ufffd"  # what decoders write for an incomplete character
LONG_TEXT = 10_000  # characters, which take some milliseconds
PRIMING_TOKENS = 16  # prompt tokens to decode, enough to tell whether a word begins with a blank

# transformers replaces its own module while it is imported, and models load in concurrent threads.
_importing = threading.Lock()


class HuggingFaceTokenizer(Tokenizer):
    """A wrapper of transformers' tokenizer, which remains accessible as `pretrained`."""

    def __init__(self, pretrained: "PreTrainedTokenizerBase") -> None:
        self.pretrained = pretrained
        self.special_ids = frozenset(pretrained.all_special_ids) | _special_ids(pretrained)
        self.truncation_side = pretrained.truncation_side
        self._backend: tokenizers.Tokenizer | None = getattr(pretrained, "backend_tokenizer", None)
        self._byte_level = is_byte_level(self._backend)
        self._encodes_by_backend = self._backend is not None and _encodes_by_backend(pretrained)

    @classmethod
    def load(cls, model: str, revision: str | None = None, trust_remote_code: bool = False) -> "HuggingFaceTokenizer":
        """Load the tokenizer of a directory or a hub id. Raise ConfigurationError where that fails."""
        with _importing:
            from transformers import AutoTokenizer
        try:
            pretrained = AutoTokenizer.from_pretrained(model, revision=revision, trust_remote_code=trust_remote_code)
        except Exception as error:  # OSError, ValueError, KeyError and others, depending on what is missing
            reason = str(error).strip().split("\n")[0]
            raise ConfigurationError(f"{model}: the tokenizer cannot be loaded: {reason}") from error
        return cls(pretrained)

    @property
    def vocabulary_size(self) -> int:
        return len(self.pretrained)

    def encode(self, text: str, add_special_tokens: bool = True) -> list[int]:
        if self._backend is not None and self._encodes_by_backend and _is_plain(self._backend, self.pretrained):
            if len(text) < LONG_TEXT:
                return list(self._backend.encode(text, add_special_tokens=add_special_tokens).ids)
            # Takes a third of the time and lets other threads run meanwhile, but has to wake threads of its own.
            return list(self._backend.encode_batch_fast([text], add_special_tokens=add_special_tokens)[0].ids)
        # Not verbose: the prompt's length is checked elsewhere, against the model.
        return list(self.pretrained.encode(text, add_special_tokens=add_special_tokens, verbose=False))

    def min_tokens(self, text: str) -> int:
        if not self._byte_level or not self._encodes_by_backend:
            return 0
        if (
            self._backend is None
            or self._backend.normalizer is not None
            or not _is_plain(self._backend, self.pretrained)
        ):
            return 0  # characters may be left out
        return -(-len(text) // self._longest_piece)

    @cached_property
    def _longest_piece(self) -> int:
        """The length of the longest token, in characters, of which byte-level vocabularies have one for each byte."""
        return max(map(len, self.pretrained.get_vocab()), default=1)

    def decode(self, token_ids: list[int], skip_special_tokens: bool = True) -> str:
        return str(self.pretrained.decode(token_ids, skip_special_tokens=skip_special_tokens))

    def detokenizer(self, prompt_ids: list[int]) -> Detokenizer:
        if self._backend is None:
            return SlowDetokenizer(self.pretrained, prompt_ids)
        return FastDetokenizer(self._backend, prompt_ids)

    def token_id(self, token: str) -> int | None:
        token_id = self.pretrained.convert_tokens_to_ids(token)  # for an unknown token, the unknown token's id or None
        if isinstance(token_id, int) and self.pretrained.convert_ids_to_tokens(token_id) == token:
            return token_id
        return None

    def token_name(self, token_id: int) -> str:
        name = self.pretrained.convert_ids_to_tokens(token_id)
        return name if isinstance(name, str) else super().token_name(token_id)

    def configuration(self) -> dict[str, Any]:
        return tokenizer_configuration(self.pretrained)

    def token_bytes(self, token_id: int) -> bytes:
        return self._piece_bytes(self.pretrained.convert_ids_to_tokens(token_id))

    def _piece_bytes(self, piece: object) -> bytes:
        if isinstance(piece, bytes):  # the type of vocabularies read by some models' own code
            return piece
        if not isinstance(piece, str):  # the model may have more ids than the tokenizer
            return b""
        return byte_level_bytes(piece) if self._byte_level else piece_bytes(piece)

    def all_token_bytes(self) -> list[bytes]:
        """Return every token's bytes by id, b"" for ids without a token."""
        vocabulary: dict[str, int] = self.pretrained.get_vocab()
        found = [b""] * (max(vocabulary.values(), default=-1) + 1)
        for piece, token_id in vocabulary.items():
            found[token_id] = self._piece_bytes(piece)
        return found

    @property
    def hidden_ids(self) -> frozenset[int]:
        """The ids of all tokens that decoding without special tokens drops."""
        added = self.pretrained.added_tokens_decoder
        return self.special_ids | {token_id for token_id, token in added.items() if token.special}

    def chat_template(self, with_tools: bool) -> str | None:
        templates: str | dict[str, str] | None = self.pretrained.chat_template
        if not isinstance(templates, dict):
            return templates
        return (templates.get("tool_use") if with_tools else None) or templates.get("default")

    def render_chat(self, chat: Chat, template: str) -> str:
        try:
            return str(
                self.pretrained.apply_chat_template(
                    chat.messages,
                    tools=cast("Any", chat.tools),
                    chat_template=template,
                    tokenize=False,
                    **{
                        "add_generation_prompt": chat.add_generation_prompt,
                        "continue_final_message": chat.continue_final_message,
                        **chat.template_arguments,
                    },
                )
            )
        except Exception as error:  # the template's own refusal, or any error from unexpected values
            raise InvalidPayload(f"{REFUSED_BY_TEMPLATE}{error or type(error).__name__}") from None


def _encodes_by_backend(pretrained: "PreTrainedTokenizerBase") -> bool:
    """Return whether the tokenizer encodes by its Rust backend alone, without overriding methods."""
    from transformers import PreTrainedTokenizerFast

    methods = ("encode", "__call__", "_encode_plus")
    return all(getattr(type(pretrained), name) is getattr(PreTrainedTokenizerFast, name) for name in methods)


def _special_ids(pretrained: "PreTrainedTokenizerBase") -> frozenset[int]:
    """Return the ids that decoding drops, which are more than those of the named special tokens."""
    return frozenset(token_id for token_id, token in pretrained.added_tokens_decoder.items() if token.special)


def _is_plain(backend: "tokenizers.Tokenizer", pretrained: "PreTrainedTokenizerBase") -> bool:
    """Return whether truncation and padding are set as for a single text; another call may have changed them."""
    splits_special_tokens = getattr(pretrained, "split_special_tokens", False)
    whole = backend.truncation is None and backend.padding is None
    return whole and backend.encode_special_tokens == splits_special_tokens


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
