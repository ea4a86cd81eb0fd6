"""The number of compute threads on the CPU."""

import torch
from transformers import PreTrainedModel

FEW_PARAMETERS = 8_000_000  # operations of smaller models end before a second thread could help
FEW_TOKENS = 64  # in a step; with more, threads help small models too


class Threads:
    """The number of threads for steps: torch's own or the requested number, but one for small steps of small models."""

    def __init__(self, model: PreTrainedModel, asked_for: int | None) -> None:
        if asked_for is not None:
            torch.set_num_threads(asked_for)
        self._max = torch.get_num_threads()
        parameters = sum(parameter.numel() for parameter in model.parameters())
        self._for_few = 1 if asked_for is None and parameters < FEW_PARAMETERS else self._max
        self.use(1)

    def use(self, tokens: int) -> None:
        """Set the number of threads for a step of that many tokens."""
        if self._for_few != self._max:
            torch.set_num_threads(self._for_few if tokens <= FEW_TOKENS else self._max)
