"""Sequences without an engine, for tests of sampling."""

from typing import Any

import torch

from lmi_core.generation.tokenizer import Detokenizer
from lmi_core.texts.token_stream import TokenStream
from lmi_plugins.torch_engine.sequences.sequence import Sequence
from tests.plugins.torch_engine.tiny_models import request

VOCABULARY = 50
PROMPT = [3, 4, 4, 9]


class NoText(Detokenizer):
    def step(self, token_id: int) -> str:
        return ""


def sequence(generated: tuple[int, ...] = (), **parameters: Any) -> Sequence:
    sequence = Sequence.of(request("a", PROMPT, **parameters), 1000, TokenStream(NoText()))
    sequence.token_ids += generated
    return sequence


def logits(rows: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(rows, VOCABULARY, generator=torch.Generator().manual_seed(seed)) * 3
