"""Beam search as transformers does it: which continuations go on, which are finished, and when there is no better."""

import math
from collections.abc import Sequence as Items
from dataclasses import dataclass
from typing import NamedTuple

import torch

from lmi_core.engines.hypotheses import Hypotheses
from lmi_core.generation import FinishReason, GenerationStep, Token
from lmi_plugins.torch_engine.sampling.raw_logits import joined_logits
from lmi_plugins.torch_engine.scheduling.block_pool import BlockPool, blocks_for
from lmi_plugins.torch_engine.sequence import Chunk, Likeliest, Sequence
from lmi_plugins.torch_engine.token_texts import TokenTexts


class Choice(NamedTuple):
    """One generated token of a beam."""

    token_id: int
    log_prob: float  # of the model's own distribution
    top_tokens: Likeliest | None


@dataclass(frozen=True, slots=True)
class Hypothesis:
    """A finished beam."""

    choices: list[Choice]
    reason: FinishReason
    logits: bytes | None  # of each choice, where they are asked for


@dataclass(frozen=True, slots=True)
class Candidate:
    """A beam with one more token."""

    score: float  # the sum of the log probs, after penalties
    parent: int
    choice: Choice
    reason: FinishReason | None


class BeamSearch:
    """One request's search. Its beams run in the same steps: each is a sequence that shares blocks with the others."""

    def __init__(self, root: Sequence, pool: BlockPool, texts: TokenTexts) -> None:
        parameters = root.parameters
        self._root = root  # never runs itself
        self._pool = pool
        self._texts = texts
        self._width = parameters.num_beams
        # So many that as many as there are beams remain if all that can end by a token do.
        ends = len(root.end_ids) + len(parameters.stop_token_sequences)
        self._num_candidates = max(2, 1 + ends) * self._width
        self.prefill: list[Token] | None = None  # goes out with the first hypothesis, as do the prompt's logits
        self.prompt_logits: bytes | None = None
        root.rows = self._width
        root.search = self
        self.restart()

    def restart(self) -> Sequence:
        """Begin anew, with the prompt alone: it comes to the same beams."""
        self.beams = [self._root.fork([])]
        self._finished = self._no_hypotheses()
        self._scores = [0.0]
        self._choices: list[list[Choice]] = [[]]  # of each beam
        return self.beams[0]

    def _no_hypotheses(self) -> Hypotheses[Hypothesis]:
        root, parameters = self._root, self._root.parameters
        longest = root.end - root.prompt_length
        return Hypotheses(self._width, parameters.length_penalty, parameters.early_stopping, longest)

    def steps(self) -> list[GenerationStep]:
        """What the finished search found, best first, each all at once."""
        return [self._step(place, hypothesis) for place, hypothesis in enumerate(self._finished.best)]

    def _step(self, place: int, hypothesis: Hypothesis) -> GenerationStep:
        stream, tokens = self._texts.stream(self._root.prompt_ids, self._root.parameters), list[Token]()
        for token_id, log_prob, top_tokens in hypothesis.choices:
            tokens += stream.push(token_id, log_prob, self._texts.top_tokens(top_tokens))
        step = GenerationStep(tokens + stream.finish(), hypothesis.reason, place, generation_logits=hypothesis.logits)
        if place == 0:
            step.prefill, step.prompt_logits = self.prefill, self.prompt_logits
        return step

    def advance(self, log_probs: torch.Tensor, scores: torch.Tensor, top_tokens: Items[Likeliest] | None) -> bool:
        """False once the search is over; else the beams are new ones, and those that are dropped hold blocks still.

        log_probs, and scores, which penalties make of them: [beams, vocabulary]; top_tokens: of each beam.
        """
        candidates = self._candidates(log_probs, scores, top_tokens)
        length = len(self.beams[0].token_ids) + 1 - self._root.prompt_length
        for candidate in candidates[: self._width]:
            if candidate.reason is not None:
                self._finish(candidate, candidate.reason, length)
        going_on = [candidate for candidate in candidates if candidate.reason is None][: self._width]
        if not going_on or not self._finished.may_improve(going_on[0].score, length):
            return False
        self._go_on(going_on)
        return True

    def _candidates(
        self, log_probs: torch.Tensor, scores: torch.Tensor, top_tokens: Items[Likeliest] | None
    ) -> list[Candidate]:
        """The best first."""
        vocabulary = scores.shape[1]
        sums = (scores + torch.tensor(self._scores, device=scores.device)[:, None]).flatten()
        best = sums.topk(min(self._num_candidates, len(sums)))
        own: list[float] = log_probs.flatten()[best.indices].tolist()
        if not math.isfinite(best.values[0]):
            raise ValueError("the model gave no numbers")
        candidates = []
        for score, place, log_prob in zip(best.values.tolist(), best.indices.tolist(), own, strict=True):
            parent, token_id = divmod(place, vocabulary)
            choice = Choice(token_id, log_prob, None if top_tokens is None else top_tokens[parent])
            candidates.append(Candidate(score, parent, choice, self._reason(self.beams[parent], token_id)))
        return candidates

    def _reason(self, beam: Sequence, token_id: int) -> FinishReason | None:
        """Why a beam ends with this token, if it does."""
        parameters = beam.parameters
        if token_id in beam.end_ids and not parameters.ignore_end:
            return "eos_token"
        if (parameters.stop_sequences or parameters.stop_token_sequences) and self._stops(beam, token_id):
            return "stop_sequence"
        return "length" if len(beam.token_ids) + 1 >= beam.end else None

    def _stops(self, beam: Sequence, token_id: int) -> bool:
        stream = self._texts.stream(self._root.prompt_ids, beam.parameters)
        for generated in (*beam.token_ids[beam.prompt_length :], token_id):
            stream.push(generated, None)
        return stream.stopped

    def _finish(self, candidate: Candidate, reason: FinishReason, length: int) -> None:
        choices = [*self._choices[candidate.parent], candidate.choice]
        logits = joined_logits(self.beams[candidate.parent].generation_logits)
        self._finished.add(Hypothesis(choices, reason, logits), candidate.score, length)

    def _go_on(self, candidates: list[Candidate]) -> None:
        beams: list[Sequence] = []
        for candidate in candidates:
            beam = self.beams[candidate.parent]
            if beam in beams:
                beam = beam.fork(self._pool.share(beam.blocks[: blocks_for(beam.computed)]))
            beams.append(beam)
        for beam, candidate in zip(beams, candidates, strict=True):
            beam.token_ids.append(candidate.choice.token_id)
            beam.rows = 1
        self.beams = beams
        self._choices = [[*self._choices[each.parent], each.choice] for each in candidates]
        self._scores = [candidate.score for candidate in candidates]


def beam_rows(chunks: Items[Chunk]) -> Items[tuple[BeamSearch, list[int]]]:
    """The searches whose beams are all computed, and where the logits of each beam are among those of all chunks."""
    if all(chunk.sequence.search is None for chunk in chunks):
        return []
    rows: dict[BeamSearch, list[int]] = {}
    offset = 0
    for chunk in chunks:
        offset += chunk.end - chunk.logits_start
        if chunk.sequence.search is not None and chunk.samples:
            rows.setdefault(chunk.sequence.search, []).append(offset - 1)
    return list(rows.items())
