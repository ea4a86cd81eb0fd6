"""Prompt formats for filling in the middle of a text, identified by their special tokens."""

from dataclasses import dataclass
from typing import NamedTuple

from lmi_core.errors import InvalidPayload
from lmi_core.generation.tokenizer import Tokenizer

PREFIX, SUFFIX = "prefix", "suffix"  # placeholders of the two texts in a format
ANCHOR = "☺"  # a text that no tokenizer merges with the text after it


@dataclass(frozen=True, slots=True)
class MiddleFormat:
    """The order of tokens and texts in a prompt, and further tokens that end the middle."""

    models: str  # trained on the format, for documentation
    parts: tuple[str, ...]
    ends: tuple[str, ...] = ()
    bare_suffix: bool = False  # drop the blank that the tokenizer puts before every text

    @property
    def tokens(self) -> tuple[str, ...]:
        return tuple(part for part in self.parts if part not in (PREFIX, SUFFIX))


FORMATS = (
    MiddleFormat(
        "Qwen2.5-Coder, Qwen3-Coder, CodeGemma, Granite 4",
        ("<|fim_prefix|>", PREFIX, "<|fim_suffix|>", SUFFIX, "<|fim_middle|>"),
        ("<|fim_pad|>", "<|repo_name|>", "<|file_sep|>", "<|file_separator|>", "<|endoftext|>", "<|end_of_text|>"),
    ),
    MiddleFormat(
        "StarCoder, StarCoder2, Stable Code, Refact, Granite Code",
        ("<fim_prefix>", PREFIX, "<fim_suffix>", SUFFIX, "<fim_middle>"),
        ("<fim_pad>", "<repo_name>", "<file_sep>", "<filename>", "<|endoftext|>"),
    ),
    MiddleFormat(
        "SantaCoder",
        ("<fim-prefix>", PREFIX, "<fim-suffix>", SUFFIX, "<fim-middle>"),
        ("<fim-pad>", "<|endoftext|>"),
    ),
    MiddleFormat(
        "DeepSeek-Coder, DeepSeek-Coder-V2, DeepSeek-V2 and later",
        ("<｜fim▁begin｜>", PREFIX, "<｜fim▁hole｜>", SUFFIX, "<｜fim▁end｜>"),
    ),
    MiddleFormat(
        "Code Llama",
        ("▁<PRE>", PREFIX, "▁<SUF>", SUFFIX, "▁<MID>"),
        ("▁<EOT>",),
        bare_suffix=True,
    ),
    MiddleFormat("Codestral", ("[SUFFIX]", SUFFIX, "[PREFIX]", PREFIX), ("[MIDDLE]",), bare_suffix=True),
    MiddleFormat(
        "Seed-Coder",
        ("<[fim-suffix]>", SUFFIX, "<[fim-prefix]>", PREFIX, "<[fim-middle]>"),
    ),
    MiddleFormat(
        "GLM-4.5",
        ("<|code_prefix|>", PREFIX, "<|code_suffix|>", SUFFIX, "<|code_middle|>"),
        ("<|endoftext|>",),
    ),
)


class MiddlePrompt(NamedTuple):
    """A prompt that asks for the middle between two texts."""

    prompt_ids: list[int]
    stop_token_ids: list[int]  # end the middle, besides the model's own end-of-sequence tokens


def find_middle_format(tokenizer: Tokenizer) -> MiddleFormat | None:
    """Return the first format whose tokens are all in the vocabulary, or None."""
    return next((each for each in FORMATS if all(tokenizer.token_id(token) is not None for token in each.tokens)), None)


def middle_prompt(tokenizer: Tokenizer, prefix: str, suffix: str, add_special_tokens: bool) -> MiddlePrompt:
    """Write a prefix and a suffix in the model's format. Raise InvalidPayload if the tokenizer has none."""
    middle_format = find_middle_format(tokenizer)
    if middle_format is None:
        raise InvalidPayload(
            "`suffix` is not supported by this model: its tokenizer has no fill-in-the-middle tokens such as "
            "<|fim_prefix|>; remove `suffix`"
        )
    prompt_ids = _leading_special_ids(tokenizer) if add_special_tokens else []
    for part in middle_format.parts:
        if part == PREFIX:
            prompt_ids += tokenizer.encode(prefix, add_special_tokens=False)
        elif part == SUFFIX:
            prompt_ids += _suffix_ids(tokenizer, suffix, middle_format.bare_suffix)
        else:
            prompt_ids += _ids(tokenizer, part)
    ends = [token_id for token in (*middle_format.tokens, *middle_format.ends) for token_id in _ids(tokenizer, token)]
    return MiddlePrompt(prompt_ids, ends)


def _ids(tokenizer: Tokenizer, token: str) -> list[int]:
    token_id = tokenizer.token_id(token)
    return [] if token_id is None else [token_id]


def _leading_special_ids(tokenizer: Tokenizer) -> list[int]:
    """Return the special ids that the model expects before a text, such as a beginning-of-sequence token."""
    plain, whole = tokenizer.encode(ANCHOR, add_special_tokens=False), tokenizer.encode(ANCHOR)
    lengths = range(len(whole) - len(plain) + 1)
    return next((whole[:length] for length in lengths if whole[length : length + len(plain)] == plain), [])


def _suffix_ids(tokenizer: Tokenizer, suffix: str, bare: bool) -> list[int]:
    ids = tokenizer.encode(suffix, add_special_tokens=False)
    if not bare:
        return ids
    anchor = tokenizer.encode(ANCHOR, add_special_tokens=False)
    anchored = tokenizer.encode(ANCHOR + suffix, add_special_tokens=False)
    return anchored[len(anchor) :] if anchored[: len(anchor)] == anchor else ids
