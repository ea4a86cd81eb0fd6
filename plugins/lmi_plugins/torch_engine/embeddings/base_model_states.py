"""Hidden states of a model that runs with adapters otherwise."""

from collections.abc import Sequence as Items

import torch

from lmi_plugins.torch_engine.adapters.store import AdapterStore
from lmi_plugins.torch_engine.embeddings.hidden_states import HiddenStates


class BaseModelStates(HiddenStates):
    """Hidden states of the model without the adapters of the generation step before."""

    def __init__(self, states: HiddenStates, adapters: AdapterStore) -> None:
        self._states = states
        self._adapters = adapters

    def run(self, texts: Items[list[int]]) -> list[torch.Tensor]:
        self._adapters.begin([])
        return self._states.run(texts)
