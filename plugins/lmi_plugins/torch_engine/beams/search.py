"""Beam search as in transformers."""

import math
from collections.abc import Sequence as Items
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import torch

from lmi_core.errors import InvalidParameter
from lmi_core.generation.hypotheses import Hypotheses
from lmi_core.generation.output import FinishReason, GenerationStep, Token
from lmi_plugins.torch_engine.cache.block_pool import BlockPool
from lmi_plugins.torch_engine.messages.requests import ParameterNames
from lmi_plugins.torch_engine.sampling.outcome import logits_bytes, take_prompt_logits
from lmi_plugins.torch_engine.sampling.processing import process
from lmi_plugins.torch_engine.sampling.sampler import ranks_of
from lmi_plugins.torch_engine.sequences.sequence import Sequence, SequenceGroup
from lmi_plugins.torch_engine.sequences.token_texts import TokenTexts
from lmi_plugins.torch_engine.sequences.top_logprobs import TopLogprobs, read_top_logprobs


class Choice(NamedTuple):
    """One generated token of a beam."""

    token_id: int
    log_prob: float  # from the model's own distribution
    top_logprobs: TopLogprobs | None
    rank: int | None  # if requested


@dataclass(frozen=True, slots=True)
class Hypothesis:
    """A finished beam."""

    choices: list[Choice]
    reason: FinishReason
    logits: bytes | None  # of each choice, if requested


@dataclass(frozen=True, slots=True)
class Candidate:
    """A beam with one more token."""

    score: float  # the sum of the log probs, after penalties
    parent: int  # the index of the beam it extends
    choice: Choice
    reason: FinishReason | None  # why the beam ends with this token; None if it does not


class BeamSearch(SequenceGroup):
    """The sequence group of one request's beams, which share the blocks of their common tokens."""

    sampled: ClassVar[bool] = False

    def __init__(self, root: Sequence, pool: BlockPool, texts: TokenTexts) -> None:
        """Start a search from `root`, which has the prompt's tokens and never runs itself."""
        self._root = root
        self._pool = pool
        self._texts = texts
        self._width = root.parameters.num_beams
        # Enough candidates must remain for all beams even if every token that can end a beam is among the best.
        ends = len(root.eos_token_ids) + len(root.parameters.stop_token_sequences)
        self._num_candidates = max(2, 1 + ends) * self._width
        self._prefill: list[Token] | None = None  # sent with the best hypothesis, like the prompt's logits
        self._prompt_logits: bytes | None = None
        self._num_cached_tokens: int | None = None
        self._queue_time: float | None = None
        self.restart()

    @property
    def caches_blocks(self) -> bool:
        return not self.sequences[0].started  # most beams are dropped soon

    def restart(self) -> None:
        """Start over with the prompt alone, which leads to the same beams."""
        self.sequences = [self._root.fork([])]
        self.num_rows = self._width
        root, parameters = self._root, self._root.parameters
        self._hypotheses = Hypotheses[Hypothesis](
            self._width, parameters.length_penalty, parameters.early_stopping, root.max_length - root.prompt_length
        )
        self._scores = [0.0]
        self._choices: list[list[Choice]] = [[]]  # by beam

    def advance(self, logits: torch.Tensor) -> list[GenerationStep]:
        """Continue with the best candidates by the beams' logits, [beams, vocabulary].

        Return nothing until the search is done, then a step for each found sequence, best first.
        """
        self._start()
        log_probs = logits.float().log_softmax(-1)
        count = self._root.parameters.num_top_tokens
        top_logprobs = read_top_logprobs(logits, [count] * len(self.sequences)) if count else None
        candidates = self._candidates(log_probs, process(log_probs, self.sequences), top_logprobs)
        length = len(self.sequences[0].token_ids) + 1 - self._root.prompt_length
        for candidate in candidates[: self._width]:
            if candidate.reason is not None:
                self._finish(candidate, candidate.reason, length)
        unfinished = [candidate for candidate in candidates if candidate.reason is None][: self._width]
        if not unfinished or not self._hypotheses.may_improve(unfinished[0].score, length):
            return [self._step(index, hypothesis) for index, hypothesis in enumerate(self._hypotheses.best)]
        self._branch(unfinished)
        return []

    def _start(self) -> None:
        """Take over the facts about the prompt from the first beam, which has computed it."""
        first = self.sequences[0]
        if not first.started:
            self._prefill, self._prompt_logits = self._texts.prefill(first), take_prompt_logits(first)
            if self._num_cached_tokens is None:  # the prompt was not preempted
                self._num_cached_tokens = first.num_cached_tokens
            self._queue_time = self._queue_time or first.queue_time
            first.started = True

    def _step(self, index: int, hypothesis: Hypothesis) -> GenerationStep:
        """Return a hypothesis as the only step of the sequence with this index."""
        stream, tokens = self._texts.stream(self._root.prompt_ids, self._root.parameters), list[Token]()
        for token_id, log_prob, top_logprobs, rank in hypothesis.choices:
            tokens += stream.push(token_id, log_prob, self._texts.top_tokens(top_logprobs), rank)
        step = GenerationStep(tokens + stream.finish(), hypothesis.reason, index, generation_logits=hypothesis.logits)
        step.stop_sequence = stream.stop_sequence
        if index == 0:
            step.prefill, step.prompt_logits = self._prefill, self._prompt_logits
            step.cached_tokens = self._num_cached_tokens
            step.queue_time = self._queue_time
        return step

    def _candidates(
        self, log_probs: torch.Tensor, scores: torch.Tensor, top_logprobs: Items[TopLogprobs] | None
    ) -> list[Candidate]:
        """Return the best continuations of all beams, best first; log_probs, scores: [beams, vocabulary]."""
        vocabulary = scores.shape[1]
        sums = (scores + torch.tensor(self._scores, device=scores.device)[:, None]).flatten()
        best = sums.topk(min(self._num_candidates, len(sums)))
        own: list[float] = log_probs.flatten()[best.indices].tolist()
        if not math.isfinite(best.values[0]):
            raise ValueError("the model's logits are not numbers")
        ranks = self._ranks(log_probs, best.indices)
        candidates = []
        for score, index, log_prob, rank in zip(best.values.tolist(), best.indices.tolist(), own, ranks, strict=True):
            parent, token_id = divmod(index, vocabulary)
            choice = Choice(token_id, log_prob, None if top_logprobs is None else top_logprobs[parent], rank)
            candidates.append(Candidate(score, parent, choice, self._reason(self.sequences[parent], token_id)))
        return candidates

    def _ranks(self, log_probs: torch.Tensor, indices: torch.Tensor) -> Items[int | None]:
        """Return the rank of each candidate's token, if requested; log_probs: [beams, vocabulary]."""
        if not self._root.parameters.ranks:
            return [None] * len(indices)
        vocabulary = log_probs.shape[1]
        ranks: list[int] = ranks_of(log_probs[indices // vocabulary], indices % vocabulary).tolist()
        return ranks

    def _reason(self, beam: Sequence, token_id: int) -> FinishReason | None:
        """Return why a beam ends with this token, if it does."""
        parameters = beam.parameters
        if token_id in beam.eos_token_ids and not parameters.ignore_end:
            return "eos_token"
        if (parameters.stop_sequences or parameters.stop_token_sequences) and self._stops(beam, token_id):
            return "stop_sequence"
        return "length" if len(beam.token_ids) + 1 >= beam.max_length else None

    def _stops(self, beam: Sequence, token_id: int) -> bool:
        """Return whether a stop sequence is complete with this token."""
        stream = self._texts.stream(self._root.prompt_ids, beam.parameters)
        for generated in (*beam.token_ids[beam.prompt_length :], token_id):
            stream.push(generated, None)
        return stream.stopped

    def _finish(self, candidate: Candidate, reason: FinishReason, length: int) -> None:
        """Rank a finished beam among the hypotheses."""
        choices = [*self._choices[candidate.parent], candidate.choice]
        logits = logits_bytes(self.sequences[candidate.parent].generation_logits)
        self._hypotheses.add(Hypothesis(choices, reason, logits), candidate.score, length)

    def _branch(self, candidates: list[Candidate]) -> None:
        """Make the candidates the new beams; old beams without candidates release their blocks."""
        beams: list[Sequence] = []
        for candidate in candidates:
            beam = self.sequences[candidate.parent]
            if beam in beams:
                blocks = self._pool.blocks_for(beam.num_computed_tokens)
                beam = beam.fork(self._pool.share(beam.block_table[:blocks]))
            beams.append(beam)
        for beam, candidate in zip(beams, candidates, strict=True):
            beam.token_ids.append(candidate.choice.token_id)
        for beam in self.sequences:
            if beam not in beams:
                self._pool.release(beam.block_table)
        self.sequences = beams
        self.num_rows = len(beams)
        self._choices = [[*self._choices[each.parent], each.choice] for each in candidates]
        self._scores = [candidate.score for candidate in candidates]


def check_beams(sequence: Sequence, pool: BlockPool, rows: int, paged: bool, names: ParameterNames) -> None:
    """Raise InvalidParameter if the cache and a batch of `rows` can never hold all beams."""
    parameters = sequence.parameters
    beams = parameters.num_beams
    if not paged:
        raise InvalidParameter(
            f"{names.num_beams} must be 1 with this model, which runs each sequence separately, without a paged cache"
        )
    excluded = {
        "a temperature": not parameters.greedy,
        "`n` or `best_of`": parameters.num_samples > 1,
        "guided decoding": parameters.guide is not None,
    }
    for name, given in excluded.items():
        if given:
            raise InvalidParameter(f"{names.num_beams} above 1 and {name} cannot be used together")
    limit = sequence.recompute_beyond
    if limit is not None and limit < sequence.max_length - 1:
        raise InvalidParameter(
            f"{names.num_beams} above 1 cannot be used if a prompt of up to {limit} tokens may grow beyond this "
            f"length, at which this model recomputes everything: request fewer tokens"
        )
    if beams > rows:
        raise InvalidParameter(
            f"{names.num_beams} must be at most {rows}, the number of sequences that run at the same time. Given: "
            f"{beams}"
        )
    shared = sequence.prompt_length // pool.block_size
    if shared + beams * (pool.blocks_for(sequence.max_length) - shared) > pool.size:
        raise InvalidParameter(
            f"{names.num_beams} must be smaller: the cache of {pool.size * pool.block_size} tokens cannot hold {beams} "
            f"sequences of {sequence.max_length} tokens. Given: {beams}"
        )
