"""The adapter and the soft prompt of a sequence, on which its keys and values depend besides its tokens."""

from hashlib import sha256

import torch

from lmi_plugins.torch_engine.messages.tensors import to_bytes
from lmi_plugins.torch_engine.sequences.adapter import Adapter
from lmi_plugins.torch_engine.sequences.sequence import Sequence


def condition(sequence: Sequence, adapter: Adapter | None, soft_prompt: torch.Tensor | None) -> None:
    """Set a sequence's adapter, soft prompt and cache salt; it shares blocks only with sequences that have the same."""
    sequence.adapter = adapter
    sequence.soft_prompt = soft_prompt
    if adapter is not None:
        sequence.variant += ("adapter", adapter.serial)
    if soft_prompt is not None:
        sequence.variant += ("soft prompt", sha256(to_bytes(soft_prompt)).hexdigest())
    if sequence.parameters.cache_salt is not None:
        sequence.variant += ("salt", sequence.parameters.cache_salt)
