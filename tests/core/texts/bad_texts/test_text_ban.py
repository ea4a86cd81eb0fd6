"""Random models, on vocabularies in which texts have many spellings, never write what they must not."""

import random
from collections.abc import Sequence
from typing import Any

import pytest
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from lmi_core.texts.bad_texts.text_ban import TextBan, TokenIndex, TokenIndexes
from lmi_core.texts.huggingface_tokenizer import HuggingFaceTokenizer
from lmi_core.texts.token_writer import TokenWriter

PIECES = [b"a", b"b", b"c", b"ab", b"ba", b"bc", b"abc", b"cab", b"aa", b" ", b" a", b" ab", b"b c", b"", b"bcabcab"]
EURO = "€".encode()


def banned(ban: TextBan, ids: Sequence[int], start: int = 0) -> set[int]:
    completing = ban.completing(ids, start)
    return {*ban.always.tolist(), *(() if completing is None else completing.tolist())}


def expected(pieces: Sequence[bytes], texts: Sequence[str], ids: Sequence[int], start: int = 0) -> set[int]:
    """Return the expected tokens by checking each token of the vocabulary."""
    before = b"".join(pieces[i] for i in ids[start:])
    return {i for i, piece in enumerate(pieces) if any(text.encode() in before + piece for text in texts)}


def test_a_text_is_kept_out_in_every_split() -> None:
    pieces = [b"b", b"ba", b"bad", b"a", b"ad", b"d", b" bad", b"badly", b"B", b"x"]
    ban = TextBan(TokenIndex(pieces), ["bad"])
    assert banned(ban, []) == {2, 6, 7}
    assert banned(ban, [0]) == {2, 6, 7, 4}
    assert banned(ban, [1]) == {2, 6, 7, 5}
    assert banned(ban, [0, 3]) == {2, 6, 7, 5}
    assert banned(ban, [0, 9]) == {2, 6, 7}
    assert banned(ban, [8]) == {2, 6, 7}, "case counts"


def test_what_the_prompt_ends_with_does_not_count() -> None:
    ban = TextBan(TokenIndex([b"ba", b"d", b"bad"]), ["bad"])
    assert banned(ban, [0], start=1) == {2}
    assert banned(ban, [0, 0], start=1) == {2, 1}


def test_characters_of_several_tokens() -> None:
    pieces = [*(bytes([byte]) for byte in range(256)), EURO, EURO[:2], EURO[1:]]
    ban = TextBan(TokenIndex(pieces), ["€"])
    assert banned(ban, []) == {256}
    assert banned(ban, [EURO[0]]) == {256, 258}
    assert banned(ban, [257]) == banned(ban, [EURO[0], EURO[1]]) == {256, EURO[2]}


def test_texts_that_hold_another_are_kept_out_by_it() -> None:
    index = TokenIndex([b"a", b"b", b"ab", b"xaby"])
    assert banned(TextBan(index, ["xaby", "ab", "ab"]), [0]) == banned(TextBan(index, ["ab"]), [0]) == {1, 2, 3}


def test_nothing_is_bad() -> None:
    ban = TextBan(TokenIndex(PIECES), [])
    assert banned(ban, [0, 1]) == set()
    assert banned(TextBan(TokenIndex([]), ["a"]), []) == set()


@pytest.mark.parametrize("seed", range(40))
def test_exactly_what_would_complete_a_bad_text(seed: int) -> None:
    """The ban equals a search of all tokens, for texts that nearly contain bad ones, or bad ones that overlap."""
    rng = random.Random(seed)
    index = TokenIndex(PIECES)
    texts = ["".join(rng.choices("abc ", k=rng.randint(1, 7))) for _ in range(rng.randint(1, 4))]
    ban = TextBan(index, texts)
    start = rng.randint(0, 5)
    ids = rng.choices(range(len(PIECES)), k=start)
    for _ in range(60):
        bad = banned(ban, ids, start)
        assert bad == expected(PIECES, texts, ids, start), (texts, ids)
        allowed = sorted(set(range(len(PIECES))) - bad)
        if rng.random() < 0.2 and len(ids) > start:  # tokens are taken back
            del ids[rng.randint(start, len(ids)) :]
        else:
            ids.append(rng.choice(allowed))
        assert not any(text.encode() in b"".join(PIECES[i] for i in ids[start:]) for text in texts)


@pytest.mark.parametrize("length", [1, 2, 9, 300, 5000])
def test_a_text_that_repeats_itself(length: int) -> None:
    pieces = [b"a" * n for n in (1, 2, 3, 8)] + [b"b"]
    ban = TextBan(TokenIndex(pieces), ["a" * length])
    ids: list[int] = []
    for _ in range(min(length + 20, 600)):
        bad = banned(ban, ids)
        ids.append(next(i for i in (3, 2, 1, 0, 4) if i not in bad))
        assert bad == expected(pieces, ["a" * length], ids[:-1])
    assert b"a" * length not in b"".join(pieces[i] for i in ids)


def byte_level() -> HuggingFaceTokenizer:
    """Return a tokenizer like GPT-2's: each byte is a token, and so are a few words, with one special token."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    words = ["ab", "Ġab", "abc", "Ġc", "âĤ", "âĤ¬"]
    vocabulary = {piece: i for i, piece in enumerate([*alphabet, *words, "</s>", "<hidden>"])}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    tokenizer.decoder = decoders.ByteLevel()
    return _wrapped(tokenizer)


def byte_fallback() -> HuggingFaceTokenizer:
    """Return a tokenizer like Llama's: words begin with a mark for the space, and rare characters are bytes."""
    pieces = [
        "</s>",
        "<hidden>",
        "▁",
        "▁ab",
        "ab",
        "a",
        "b",
        "c",
        "▁c",
        "bc",
        "€",
        *(f"<0x{i:02X}>" for i in range(256)),
    ]
    tokenizer = Tokenizer(models.BPE(vocab={piece: i for i, piece in enumerate(pieces)}, merges=[], byte_fallback=True))
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    return _wrapped(tokenizer)


def _wrapped(tokenizer: Tokenizer) -> HuggingFaceTokenizer:
    tokenizer.add_special_tokens([AddedToken("<hidden>", special=True)])
    pretrained: Any = PreTrainedTokenizerFast  # not typed
    return HuggingFaceTokenizer(pretrained(tokenizer_object=tokenizer, eos_token="</s>"))


SKIPPED = {"skip_special_tokens": True, "spaces_between_special_tokens": True}
SHOWN = SKIPPED | {"skip_special_tokens": False}
TEXTS = ["abc", " c", "€", "a€b", "bb", "</s> </s>", "b</s>"]


@pytest.mark.parametrize("tokenizer", [byte_level(), byte_fallback()], ids=["byte level", "byte fallback"])
@pytest.mark.parametrize("skip", [True, False])
@pytest.mark.parametrize("spaced", [True, False])
def test_what_a_random_model_writes(tokenizer: HuggingFaceTokenizer, skip: bool, spaced: bool) -> None:
    """The texts as they are sent: the ban is all that keeps the bad ones out."""
    rng = random.Random(7)
    end = tokenizer.pretrained.eos_token_id
    options: dict[str, Any] = {"skip_special_tokens": skip, "spaces_between_special_tokens": spaced}
    ban = TokenIndexes(tokenizer, tokenizer.vocabulary_size, [end]).ban(TEXTS, **options, ignore_end=True)
    writer = TokenWriter(tokenizer, frozenset([end]))
    likely = sorted({i for text in [*TEXTS, *"abc €"] for i in tokenizer.encode(text)} | {end, end + 1})
    prompt = tokenizer.encode("a")
    kept_out, texts = 0, []
    for _ in range(150):
        ids, stream = list(prompt), writer.sequence(prompt, **options, show_end=True)
        for _ in range(12):
            # Parts of characters only without special tokens, which are written ahead of them.
            likely_one = not skip or rng.random() < 0.9
            choice = rng.choice(likely) if likely_one else rng.randrange(tokenizer.vocabulary_size)
            if choice in banned(ban, ids, len(prompt)):
                kept_out += 1
            else:
                ids.append(choice)
        texts.append("".join(token.text for i in ids[len(prompt) :] for token in stream.push(i)))
        assert not any(bad in texts[-1] for bad in TEXTS), (ids, texts[-1])
    assert kept_out > 50
    assert len("".join(texts)) > 500
    assert ("</s>" in "".join(texts)) is not skip


def test_special_tokens_have_the_text_that_is_shown() -> None:
    tokenizer = byte_level()
    end = tokenizer.pretrained.eos_token_id
    hidden = end + 1
    indexes = TokenIndexes(tokenizer, tokenizer.vocabulary_size, [end])
    a, b = tokenizer.encode("a")[0], tokenizer.encode("b")[0]
    skipped = indexes.ban(["ab", "</s>", "<hidden>"], **SKIPPED, ignore_end=True)
    assert b in banned(skipped, [a, end, hidden]), "they are not there in the text"
    assert not {end, hidden} & banned(skipped, [])
    shown = indexes.ban(["ab", "</s>"], **SHOWN, ignore_end=True)
    assert b not in banned(shown, [a, end])
    assert end in banned(shown, [])
    ending = indexes.ban(["</s>"], **SHOWN, ignore_end=False)
    assert end not in banned(ending, []), "what ends the sequence is no part of its text"


def test_ids_beyond_the_model_s_vocabulary_are_left_alone() -> None:
    tokenizer = byte_level()
    ban = TokenIndexes(tokenizer, 100, []).ban(["ab"], **SKIPPED, ignore_end=False)
    assert all(i < 100 for i in banned(ban, tokenizer.encode("a")))
    assert banned(ban, [10**6]) == banned(ban, [])
