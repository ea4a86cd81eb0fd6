"""Prompts for the middle of a text, with tokenizers of transformers' that have the tokens of each format."""

from typing import Any

import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast

from lmi_core.errors import InvalidPayload
from lmi_core.texts.fill_in_the_middle import FORMATS, MiddleFormat, find_middle_format, middle_prompt
from lmi_core.texts.huggingface_tokenizer import HuggingFaceTokenizer

# What each model's own documentation writes for a prefix of `p` and a suffix of `s`.
PROMPTS = {
    "Qwen2.5-Coder": "<|fim_prefix|>p<|fim_suffix|>s<|fim_middle|>",
    "StarCoder": "<fim_prefix>p<fim_suffix>s<fim_middle>",
    "SantaCoder": "<fim-prefix>p<fim-suffix>s<fim-middle>",
    "DeepSeek-Coder": "<｜fim▁begin｜>p<｜fim▁hole｜>s<｜fim▁end｜>",
    "Code Llama": "▁<PRE>p▁<SUF>s▁<MID>",
    "Codestral": "[SUFFIX]s[PREFIX]p",
    "Seed-Coder": "<[fim-suffix]>s<[fim-prefix]>p<[fim-middle]>",
    "GLM-4.5": "<|code_prefix|>p<|code_suffix|>s<|code_middle|>",
}
BYTES = [f"<0x{byte:02X}>" for byte in range(256)]


def tokenizer_with(*tokens: str, spaced: bool = False, ends: bool = False) -> HuggingFaceTokenizer:
    """Every character is a token, the first one with a blank before it where `spaced`, as SentencePiece has it."""
    vocabulary = {piece: place for place, piece in enumerate(["<unk>", "<s>", "</s>", "▁", "p", "s", "q", *BYTES])}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[], unk_token="<unk>", byte_fallback=True))
    if spaced:
        tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first", split=False)
    template = "<s> $A </s>" if ends else "<s> $A"
    special = [("<s>", 1), ("</s>", 2)]
    tokenizer.post_processor = processors.TemplateProcessing(single=template, special_tokens=special)
    tokenizer.decoder = decoders.Fuse()
    tokenizer.add_special_tokens(list(tokens))
    pretrained: Any = PreTrainedTokenizerFast  # not typed
    return HuggingFaceTokenizer(pretrained(tokenizer_object=tokenizer, unk_token="<unk>", bos_token="<s>"))


def pieces(tokenizer: HuggingFaceTokenizer, ids: list[int]) -> list[str]:
    return list(tokenizer.pretrained.convert_ids_to_tokens(ids))


@pytest.mark.parametrize("middle_format", FORMATS, ids=lambda each: each.models)
def test_every_format(middle_format: MiddleFormat) -> None:
    tokenizer = tokenizer_with(*middle_format.tokens, *middle_format.ends)
    assert find_middle_format(tokenizer) is middle_format
    prompt = middle_prompt(tokenizer, "p", "s", add_special_tokens=True)
    first, *others = pieces(tokenizer, prompt.prompt_ids)
    assert first == "<s>"
    assert "".join(others) == PROMPTS[middle_format.models.partition(",")[0]]
    assert set(pieces(tokenizer, prompt.stop_token_ids)) == {*middle_format.tokens, *middle_format.ends}


def test_tokens_that_a_vocabulary_lacks_stop_nothing() -> None:
    tokenizer = tokenizer_with("<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>", "<|file_sep|>")
    stops = pieces(tokenizer, middle_prompt(tokenizer, "p", "s", add_special_tokens=False).stop_token_ids)
    assert stops == ["<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>", "<|file_sep|>"]


@pytest.mark.parametrize("prefix", ["", "p"])
@pytest.mark.parametrize("ends", [False, True])
def test_special_tokens_come_before_the_prompt_alone(prefix: str, ends: bool) -> None:
    tokenizer = tokenizer_with("<fim_prefix>", "<fim_suffix>", "<fim_middle>", ends=ends)
    whole = middle_prompt(tokenizer, prefix, "s", add_special_tokens=True).prompt_ids
    bare = middle_prompt(tokenizer, prefix, "s", add_special_tokens=False).prompt_ids
    assert whole == [1, *bare]
    assert pieces(tokenizer, bare)[0] == "<fim_prefix>"


@pytest.mark.parametrize(("suffix", "expected"), [("s", ["s"]), (" s", ["▁", "s"])])
def test_suffix_gets_no_blank_of_the_tokenizers(suffix: str, expected: list[str]) -> None:
    tokenizer = tokenizer_with("▁<PRE>", "▁<SUF>", "▁<MID>", spaced=True)
    written = pieces(tokenizer, middle_prompt(tokenizer, "q", suffix, add_special_tokens=False).prompt_ids)
    assert written == ["▁<PRE>", "▁", "q", "▁<SUF>", *expected, "▁<MID>"]


def test_model_without_such_tokens() -> None:
    tokenizer = tokenizer_with("<|fim_prefix|>", "<|fim_suffix|>")
    assert find_middle_format(tokenizer) is None
    with pytest.raises(InvalidPayload, match="`suffix` is not supported by this model: its tokenizer has no fill"):
        middle_prompt(tokenizer, "p", "s", add_special_tokens=True)
