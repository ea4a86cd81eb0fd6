"""Facts about a model that transformers has no public name for.

`is_stateful` reads the flag that makes transformers' own `generate` refuse what would rewind a model's state, and
`attention_implementation` what `set_attn_implementation`, which is public, has set:
https://github.com/huggingface/transformers/blob/v5.0.0/src/transformers/modeling_utils.py
"""

from transformers import PreTrainedModel


def is_stateful(model: PreTrainedModel) -> bool:
    """Return whether the model carries a state from token to token that cannot be rewound, as Mamba does."""
    return model._is_stateful


def attention_implementation(model: PreTrainedModel) -> str:
    """Return the name of the attention that the model uses now, for `set_attn_implementation` to restore."""
    name: str = model.config._attn_implementation
    return name
