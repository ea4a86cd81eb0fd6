"""The sampler, which chooses the next token of every sequence in one pass over the batch."""

from collections.abc import Sequence as Items

import torch

from lmi_plugins.torch_engine.sampling.processing import process
from lmi_plugins.torch_engine.sequences.sequence import Sequence

DraftToken = tuple[int, torch.Tensor]  # a token and the distribution that it was drawn from, [vocabulary]


class Sampler:
    """The choice of tokens by the scores that the logits processors leave: the most likely one, or a drawn one."""

    def __init__(self) -> None:
        self._generator = torch.Generator()  # for sequences without a seed
        self._generator.seed()

    def sample(
        self, logits: torch.Tensor, sequences: Items[Sequence], drafts: Items[DraftToken | None] | None = None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return ids, and their log probs in the model's own distribution, both [rows], for logits [rows, vocabulary].

        Drafted tokens are accepted so that the target distribution is preserved. A log prob that is not finite means
        that the row's logits were not, or that no token was allowed.
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
                ids[rows] = self._draw_or_accept(probabilities, drawing, [drafts[row] for row in sampled])
        log_probs = log_probs_of(logits, ids)
        if scores is not logits:
            log_probs = log_probs.masked_fill(scores.gather(1, ids[:, None])[:, 0].isneginf(), float("-inf"))
        return ids, log_probs

    def draw(self, probabilities: torch.Tensor, sequences: Items[Sequence]) -> torch.Tensor:
        """Draw a token for each row, by one random number and the row's cumulative probabilities.

        Each sequence has its own generator, so that a seed gives the same text in any batch. Probabilities are float64,
        because float32 is too coarse for rare tokens.
        """
        device = probabilities.device
        if device.type == "mps":  # MPS has no float64
            probabilities = probabilities.cpu()
        cumulative = probabilities.double().cumsum(-1)  # [rows, vocabulary]
        drawn = self._random_numbers(sequences)[:, None].to(cumulative.device) * cumulative[:, -1:]
        ids = torch.searchsorted(cumulative, drawn, right=True)[:, 0]
        return ids.clamp_(max=probabilities.shape[1] - 1).to(device)  # NaN probabilities would lead beyond the end

    def _draw_or_accept(
        self, probabilities: torch.Tensor, sequences: Items[Sequence], drafts: Items[DraftToken | None]
    ) -> torch.Tensor:
        """Accept or reject the drafts; the replacement of a rejected one is drawn from the residual distribution.

        This is the rejection sampling of https://arxiv.org/abs/2302.01318.
        """
        drawn = [(row, *draft) for row, draft in enumerate(drafts) if draft is not None]
        if not drawn:
            return self.draw(probabilities, sequences)
        rows, tokens, theirs = zip(*drawn, strict=True)
        index, kept = (torch.tensor(each, device=probabilities.device) for each in (rows, tokens))
        proposed = torch.stack(theirs).to(probabilities)
        ratio = probabilities[index, kept] / proposed.gather(1, kept[:, None])[:, 0]
        numbers = self._random_numbers([sequences[row] for row in rows]).to(ratio)
        lacking = (probabilities[index] - proposed).clamp_(min=0)
        enough = lacking.sum(-1, keepdim=True) > 0  # false if both distributions are equal except for rounding
        rest = probabilities.index_copy(0, index, torch.where(enough, lacking, probabilities[index]))
        ids = self.draw(rest, sequences)
        ids[index] = torch.where(numbers < ratio, kept, ids[index])
        return ids

    def _random_numbers(self, sequences: Items[Sequence]) -> torch.Tensor:
        """Return a number from 0 to 1 for each sequence."""
        generators = [sequence.generator or self._generator for sequence in sequences]
        return torch.cat([torch.rand(1, dtype=torch.float64, generator=each) for each in generators])


def log_probs_of(logits: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
    """Return the log prob of one token for each row of the logits, [rows, vocabulary], float32."""
    return logits.log_softmax(-1).gather(1, ids[:, None])[:, 0]


def ranks_of(logits: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
    """Return how many tokens are at least as likely as each of the ids, as vLLM counts; shapes as in `log_probs_of`."""
    return (logits >= logits.gather(1, ids[:, None])).sum(-1)
