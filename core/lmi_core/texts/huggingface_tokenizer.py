"""The tokenizer that comes with a model, as transformers loads it."""

import tempfile
import threading
import weakref
from functools import cached_property
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, cast

from lmi_core.deadlines.bounded import Bounded, NeedsTimeError
from lmi_core.errors import ConfigurationError, GenerationFailed, InvalidParameter
from lmi_core.forks.forked_function import CallFailedError, ForkedFunction, origin
from lmi_core.generation.chat import Chat
from lmi_core.generation.tokenizer import Detokenizer, PairPiece, PairTemplate, Tokenizer
from lmi_core.texts.chat_template import RefusedByTemplate, render
from lmi_core.texts.detokenizers import (
    ByteLevelDetokenizer,
    FastDetokenizer,
    SlowDetokenizer,
    WholeTexts,
    byte_level_bytes,
    is_byte_level,
    joins_bytes,
    piece_bytes,
)
from lmi_core.texts.encoding import QUICK_TEXT, encoding, is_quick, to_list
from lmi_core.texts.tokenizer_files import is_generic, why_no_tokenizer

if TYPE_CHECKING:
    import tokenizers
    from transformers import PreTrainedTokenizerBase

APART = 200_000  # characters of a text that is encoded in another process: its ids would hold up all threads here
PANIC = "PanicException"  # Rust's, for an expression that takes too many steps; no Exception, and not to be imported

# Where the tokenizer's files lie is the host's own business.
PATHS = frozenset({"merges_file", "name_or_path", "special_tokens_map_file", "tokenizer_file", "vocab_file"})

# transformers replaces its own module while it is imported, and models load in concurrent threads.
_importing = threading.Lock()


class HuggingFaceTokenizer(Tokenizer):
    """A wrapper of transformers' tokenizer, which remains accessible as `pretrained`."""

    def __init__(self, pretrained: "PreTrainedTokenizerBase") -> None:
        self.pretrained = pretrained
        added = pretrained.added_tokens_decoder  # which include more than the named special tokens
        special = [token_id for token_id, token in added.items() if token.special]
        self.special_ids = frozenset([*pretrained.all_special_ids, *special])
        self.truncation_side = pretrained.truncation_side
        self._backend: tokenizers.Tokenizer | None = getattr(pretrained, "backend_tokenizer", None)
        self._byte_level = is_byte_level(self._backend)
        self._whole_texts: WholeTexts | None = None
        if self._backend is not None and joins_bytes(self._backend):
            self._whole_texts = WholeTexts(self._backend)
        self._encodes_by_backend = self._backend is not None and _encodes_by_backend(pretrained)
        self._contents: _Contents | None = None
        self._encoding: Bounded[[str, bool], list[int] | bytes] | None = None
        self._is_quick = False
        if self._backend is not None:
            self._contents = _Contents(self._backend)
            apart = ForkedFunction("lmi_core.texts.encoding:encoder", self._contents.read)
            self._is_quick = is_quick(self._backend)
            self._encoding = Bounded(encoding(self._backend), apart.call)

    @classmethod
    def load(cls, model: str, revision: str | None = None, trust_remote_code: bool = False) -> "HuggingFaceTokenizer":
        """Load the tokenizer of a directory or a hub id. Raise ConfigurationError if that fails."""
        with _importing:
            import transformers

            kind = "PreTrainedTokenizerFast" if is_generic(Path(model)) else "AutoTokenizer"
            loader: Any = getattr(transformers, kind)
        try:
            pretrained = loader.from_pretrained(model, revision=revision, trust_remote_code=trust_remote_code)
        except Exception as error:  # OSError, ValueError, KeyError and others, depending on what is missing
            raise ConfigurationError(why_no_tokenizer(model, error)) from error
        return cls(pretrained)

    def prepare(self) -> None:
        origin()
        if self._contents is not None:
            self._contents.write()

    @property
    def vocabulary_size(self) -> int:
        return len(self.pretrained)

    @property
    def eos_token_id(self) -> int | None:
        token_id = self.pretrained.eos_token_id
        return token_id if isinstance(token_id, int) else None

    def encode(self, text: str, add_special_tokens: bool = True) -> list[int]:
        """Return the text's token ids. Raise InvalidParameter if the tokenizer cannot encode the text."""
        try:
            return self._encode(text, add_special_tokens)
        except BaseException as error:
            if type(error).__name__ != PANIC and not isinstance(error, CallFailedError):
                raise
            raise InvalidParameter(f"the model's tokenizer cannot read the text: {error}") from None

    def _encode(self, text: str, add_special_tokens: bool) -> list[int]:
        if (
            self._backend is not None
            and self._encoding is not None
            and self._encodes_by_backend
            and _is_plain(self._backend, self.pretrained)
        ):
            if len(text) <= QUICK_TEXT and self._is_quick:
                return self._backend.encode(text, add_special_tokens=add_special_tokens).ids
            run = self._encoding.run_apart if len(text) > APART else self._encoding.run
            ids = run(len(text), text, add_special_tokens)
            return ids if isinstance(ids, list) else to_list(ids)
        # Not verbose: the prompt's length is checked elsewhere, against the model.
        return list(self.pretrained.encode(text, add_special_tokens=add_special_tokens, verbose=False))

    def pair_template(self) -> PairTemplate:
        return self._pair_template

    @cached_property
    def _pair_template(self) -> PairTemplate:
        encodings = self.pretrained("a", "a").encodings
        if not encodings:
            raise InvalidParameter("pairs of texts need one of transformers' fast tokenizers (tokenizer.json)")
        pieces: list[PairPiece] = []
        for token_id, sequence, token_type in zip(
            encodings[0].ids, encodings[0].sequence_ids, encodings[0].type_ids, strict=True
        ):
            piece = PairPiece(token_id if sequence is None else None, sequence or 0, token_type)
            if sequence is None or piece not in pieces:  # a text may have several tokens
                pieces.append(piece)
        return PairTemplate(tuple(pieces), "token_type_ids" in self.pretrained.model_input_names)

    def min_tokens(self, text: str) -> int:
        if not self._byte_level or not self._encodes_by_backend or self._backend is None:
            return 0
        if self._backend.normalizer is not None or not _is_plain(self._backend, self.pretrained):
            return 0  # characters may be left out
        return -(-len(text) // self._max_piece_length)

    @cached_property
    def _max_piece_length(self) -> int:
        """The length of the longest token in characters; in byte-level vocabularies, a byte is a character."""
        return max(map(len, self.pretrained.get_vocab()), default=1)

    def decode(self, token_ids: list[int], skip_special_tokens: bool = True) -> str:
        return str(self.pretrained.decode(token_ids, skip_special_tokens=skip_special_tokens))

    def detokenizer(self, prompt_ids: list[int]) -> Detokenizer:
        if self._backend is None:
            return SlowDetokenizer(self.pretrained, prompt_ids)
        if self._whole_texts is not None:
            return ByteLevelDetokenizer(self._backend, prompt_ids, self._whole_texts)
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
        # The arguments that the tokenizer was created with, without paths, and the name of its class
        given = {name: value for name, value in self.pretrained.init_kwargs.items() if name not in PATHS}
        written: dict[str, Any] = _as_json(given)
        return written | {"tokenizer_class": type(self.pretrained).__name__}

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
        """The ids of all tokens that decoding drops as special."""
        added = self.pretrained.added_tokens_decoder
        return self.special_ids | {token_id for token_id, token in added.items() if token.special}

    def chat_template(self, with_tools: bool) -> str | None:
        templates: str | dict[str, str] | None = self.pretrained.chat_template
        if not isinstance(templates, dict):
            return templates
        return (templates.get("tool_use") if with_tools else None) or templates.get("default")

    def render_chat(self, chat: Chat, template: str) -> str:
        try:
            return self.write_chat(chat, template)
        except (NeedsTimeError, GenerationFailed):
            raise
        except Exception as error:  # the template's own refusal, or any error from unexpected values
            raise RefusedByTemplate(str(error) or type(error).__name__) from None

    def write_chat(self, chat: Chat, template: str) -> str:
        """Return the prompt for the next message, or raise whatever the template raises."""
        if not self._has_own_chats:
            return render(chat, template, self.pretrained.special_tokens_map)
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

    @cached_property
    def _has_own_chats(self) -> bool:
        """Whether the tokenizer's class, which may be a model's own code, overrides how chats are written."""
        from transformers import PreTrainedTokenizerBase

        return type(self.pretrained).apply_chat_template is not PreTrainedTokenizerBase.apply_chat_template


class _Contents:
    """The contents of a tokenizer.json for a backend, in a file without a name.

    It has no reference to the tokenizer: after start-up, the garbage collector would not find such a cycle.
    """

    def __init__(self, backend: "tokenizers.Tokenizer") -> None:
        self._backend = backend
        self._file: IO[bytes] | None = None

    def write(self) -> IO[bytes]:
        if self._file is None:
            self._file = tempfile.TemporaryFile()  # noqa: SIM115 -- open as long as this lives
            weakref.finalize(self, self._file.close)
            self._file.write(self._backend.to_str().encode())
        return self._file

    def read(self) -> bytes:
        file = self.write()
        file.seek(0)
        return file.read()


def _encodes_by_backend(pretrained: "PreTrainedTokenizerBase") -> bool:
    """Return whether the tokenizer encodes only by its Rust backend, without overriding methods."""
    from transformers import PreTrainedTokenizerFast

    methods = ("encode", "__call__", "_encode_plus")
    return all(getattr(type(pretrained), name) is getattr(PreTrainedTokenizerFast, name) for name in methods)


def _is_plain(backend: "tokenizers.Tokenizer", pretrained: "PreTrainedTokenizerBase") -> bool:
    """Return whether truncation and padding have the settings for a single text; another call may have changed them."""
    splits_special_tokens = getattr(pretrained, "split_special_tokens", False)
    whole = backend.truncation is None and backend.padding is None
    return whole and backend.encode_special_tokens == splits_special_tokens


def _as_json(value: Any) -> Any:
    """Convert a value to JSON types: a special token becomes its text."""
    if isinstance(value, dict):
        return {str(key): _as_json(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_as_json(each) for each in value]
    if value is None or isinstance(value, bool | int | float | str):
        return value
    return str(getattr(value, "content", value))
