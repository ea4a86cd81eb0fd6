"""How many threads compute at once on the CPU."""

import torch
from transformers import PreTrainedModel

FEW_PARAMETERS = 8_000_000  # of a model whose operations are done before a second thread could help
FEW_TOKENS = 64  # in a step; with more, it helps such a model too


class Threads:
    """As many as torch takes by itself, or as were asked for; for a small model, one in steps of few tokens."""

    def __init__(self, model: PreTrainedModel, asked_for: int | None) -> None:
        if asked_for is not None:
            torch.set_num_threads(asked_for)
        self._most = torch.get_num_threads()
        parameters = sum(parameter.numel() for parameter in model.parameters())
        self._for_few = 1 if asked_for is None and parameters < FEW_PARAMETERS else self._most
        self.use(1)

    def use(self, tokens: int) -> None:
        """For a step with so many."""
        if self._for_few != self._most:
            torch.set_num_threads(self._for_few if tokens <= FEW_TOKENS else self._most)
