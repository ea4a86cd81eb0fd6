"""What transformers knows of a model and has no public name for.

`is_stateful` reads the flag that makes transformers' own `generate` refuse what would rewind a model's state, and
`attention_implementation` what `set_attn_implementation`, which is public, has set. `is_ignored` and `tied_weights`
have what `from_pretrained` leaves out of its report of missing and unexpected weights:
https://github.com/huggingface/transformers/blob/v5.0.0/src/transformers/modeling_utils.py
"""

import re
from collections.abc import Collection

from transformers import PreTrainedModel


def is_stateful(model: PreTrainedModel) -> bool:
    """Return whether the model carries a state from token to token that cannot be rewound, as Mamba does."""
    return model._is_stateful


def attention_implementation(model: PreTrainedModel) -> str:
    """Return the name of the attention that the model uses now, for `set_attn_implementation` to restore."""
    name: str = model.config._attn_implementation
    return name


def is_ignored(model: PreTrainedModel, name: str) -> bool:
    """Return whether checkpoints may have a weight of this name that the model does not have."""
    patterns: Collection[str] = model._keys_to_ignore_on_load_unexpected or ()
    return any(re.search(pattern, name) for pattern in patterns)


def tied_weights(model: PreTrainedModel) -> frozenset[str]:
    """Return the names of the weights that are others of the model too, which checkpoints may leave out."""
    return frozenset(model.all_tied_weights_keys)
