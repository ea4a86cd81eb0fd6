"""The tokenizer of the hello model: byte-level BPE, so that any text round-trips."""

import random
from typing import Any

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from examples.hello.corpus import CHAT_TEMPLATE, END, PAD, ROLES, epoch

VOCABULARY = 1024


def _ascii(text: str) -> str:
    """Drop other characters, so that no merge joins their bytes and each takes several tokens."""
    return text.encode("ascii", "ignore").decode("ascii")


def train_tokenizer(seed: int, max_length: int) -> PreTrainedTokenizerFast:
    """Learn the merges from one epoch of lessons."""
    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bpe.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=[PAD, END, *ROLES],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    lessons = epoch(random.Random(seed))
    bpe.train_from_iterator((_ascii(segment.text) for lesson in lessons for segment in lesson), trainer)
    pretrained: Any = PreTrainedTokenizerFast  # not typed
    tokenizer: PreTrainedTokenizerFast = pretrained(
        tokenizer_object=bpe,
        eos_token=END,
        pad_token=PAD,
        additional_special_tokens=ROLES,
        chat_template=CHAT_TEMPLATE,
        model_max_length=max_length,
        model_input_names=["input_ids", "attention_mask"],
        padding_side="left",
        clean_up_tokenization_spaces=False,
    )
    return tokenizer
