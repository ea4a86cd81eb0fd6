"""Chooses the next token of every sequence in one pass over the batch."""

from collections.abc import Sequence as Items

import torch

from lmi_plugins.torch_engine.sampling.processing import process
from lmi_plugins.torch_engine.sequence import Sequence

DrawnToken = tuple[int, torch.Tensor]  # and the distribution that it was drawn from, [vocabulary]


class Sampler:
    """Takes the likeliest token, or draws one, by the scores that the logits processors leave."""

    def __init__(self) -> None:
        self._generator = torch.Generator()  # for sequences without a seed
        self._generator.seed()

    def sample(
        self, logits: torch.Tensor, sequences: Items[Sequence], drafts: Items[DrawnToken | None] | None = None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """logits: [rows, vocabulary]; gives ids and log probs of the model's own distribution, both [rows].

        A drafted token is taken as often as leaves the distribution as it is. A log prob that is not finite tells that
        the row's logits were not, or that no token was left to choose.
        """
        logits = logits.float()
        scores = process(logits, sequences)
        ids = scores.argmax(-1)
        sampled = [row for row, sequence in enumerate(sequences) if not sequence.parameters.greedy]
        if sampled:
            rows = torch.tensor(sampled, device=logits.device)
            probabilities, drawing = scores[rows].softmax(-1), [sequences[row] for row in sampled]
            if drafts is None:
                ids[rows] = self.draw(probabilities, drawing)
            else:
                ids[rows] = self._draw_or_keep(probabilities, drawing, [drafts[row] for row in sampled])
        likelihoods = log_probs(logits, ids)
        if scores is not logits:
            likelihoods = likelihoods.masked_fill(scores.gather(1, ids[:, None])[:, 0].isneginf(), float("-inf"))
        return ids, likelihoods

    def draw(self, probabilities: torch.Tensor, sequences: Items[Sequence]) -> torch.Tensor:
        """One number of its own generator for each row, looked up in the row's cumulated probabilities.

        So a seed gives the same text whatever else is in the batch. In float64, as rare tokens are rarer than the
        steps between numbers in float32.
        """
        device = probabilities.device
        if device.type == "mps":  # has no float64
            probabilities = probabilities.cpu()
        cumulated = probabilities.double().cumsum(-1)  # [rows, vocabulary]
        places = self._numbers(sequences)[:, None].to(cumulated.device) * cumulated[:, -1:]
        ids = torch.searchsorted(cumulated, places, right=True)[:, 0]
        return ids.clamp_(max=probabilities.shape[1] - 1).to(device)  # beyond the end where probabilities are NaN

    def _draw_or_keep(
        self, probabilities: torch.Tensor, sequences: Items[Sequence], drafts: Items[DrawnToken | None]
    ) -> torch.Tensor:
        """Rejection sampling: what the drafts' distributions have too much of is drawn from what they lack."""
        drawn = [(row, *draft) for row, draft in enumerate(drafts) if draft is not None]
        if not drawn:
            return self.draw(probabilities, sequences)
        rows, tokens, theirs = zip(*drawn, strict=True)
        index, kept = (torch.tensor(each, device=probabilities.device) for each in (rows, tokens))
        proposed = torch.stack(theirs).to(probabilities)
        ratio = probabilities[index, kept] / proposed.gather(1, kept[:, None])[:, 0]
        numbers = self._numbers([sequences[row] for row in rows]).to(ratio)
        lacking = (probabilities[index] - proposed).clamp_(min=0)
        enough = lacking.sum(-1, keepdim=True) > 0  # not so where both are the same, but for rounding
        rest = probabilities.index_copy(0, index, torch.where(enough, lacking, probabilities[index]))
        ids = self.draw(rest, sequences)
        ids[index] = torch.where(numbers < ratio, kept, ids[index])
        return ids

    def _numbers(self, sequences: Items[Sequence]) -> torch.Tensor:
        """[sequences], from 0 to 1."""
        generators = [sequence.generator or self._generator for sequence in sequences]
        return torch.cat([torch.rand(1, dtype=torch.float64, generator=each) for each in generators])


def log_probs(logits: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
    """logits: [rows, vocabulary], float32; ids: [rows]."""
    return logits.log_softmax(-1).gather(1, ids[:, None])[:, 0]


def ranks(logits: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
    """Return how many tokens are at least as likely as each of the ids, as vLLM counts; shapes as in `log_probs`."""
    return (logits >= logits.gather(1, ids[:, None])).sum(-1)
