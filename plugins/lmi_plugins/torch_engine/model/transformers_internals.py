"""Facts about a model that transformers has no public name for.

`is_stateful` reads the flag that makes transformers' own `generate` refuse what would rewind a model's state,
`takes_attention_functions` what `set_attn_implementation`, which is public, asks before it sets one. Models that take
none have no mask made for one that transformers does not know either, so both functions of the name that is set are
here too:
https://github.com/huggingface/transformers/blob/v5.0.0/src/transformers/modeling_utils.py
"""

from transformers import PreTrainedModel


def is_stateful(model: PreTrainedModel) -> bool:
    """Return whether the model carries a state from token to token that cannot be rewound, as Mamba does."""
    return model._is_stateful


def takes_attention_functions(model: PreTrainedModel) -> bool:
    """Return whether the attention of the model's class can be replaced."""
    return model._can_set_attn_implementation()


def attention_implementation(model: PreTrainedModel) -> str:
    """Return the name of the attention that the model uses now."""
    name: str = model.config._attn_implementation
    return name


def set_attention_implementation(model: PreTrainedModel, name: str) -> None:
    """Set the name of the attention that the model uses, and those in it."""
    model.config._attn_implementation = name
