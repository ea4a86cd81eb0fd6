"""One vector of a text's hidden states, in the ways of sentence-transformers."""

from collections.abc import Callable, Mapping
from collections.abc import Sequence as Items

import torch

from lmi_plugins.torch_engine.messages.embeddings import Pooling


def pool(states: torch.Tensor, modes: Items[Pooling]) -> torch.Tensor:
    """Return the vector, [modes * hidden], of a text's hidden states, [tokens, hidden]."""
    states = states.float()
    return torch.cat([_POOLS[mode](states) for mode in modes])


def _weighted_mean(states: torch.Tensor) -> torch.Tensor:
    """Return the mean in which a token counts by its position, from 1 on."""
    weights = torch.arange(1, len(states) + 1, device=states.device, dtype=states.dtype)
    return (states * weights[:, None]).sum(0) / weights.sum()


# In the order in which sentence-transformers puts several of them one after the other.
_POOLS: Mapping[Pooling, Callable[[torch.Tensor], torch.Tensor]] = {
    "cls": lambda states: states[0],
    "max": lambda states: states.amax(0),
    "mean": lambda states: states.mean(0),
    "mean_sqrt_len": lambda states: states.sum(0) / len(states) ** 0.5,
    "weightedmean": _weighted_mean,
    "lasttoken": lambda states: states[-1],
}
MODES: tuple[Pooling, ...] = tuple(_POOLS)
