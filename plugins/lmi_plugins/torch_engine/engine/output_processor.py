"""Conversion of a step's results into the generation steps of requests."""

import logging
import math
from collections.abc import Sequence as Items

import torch

from lmi_core.generation.output import FinishReason, GenerationStep
from lmi_plugins.torch_engine.beams.search import BeamSearch
from lmi_plugins.torch_engine.cache.prefix_cache import PrefixCache
from lmi_plugins.torch_engine.messages.results import Result, Results, merge_steps
from lmi_plugins.torch_engine.requests.active_requests import ActiveRequests
from lmi_plugins.torch_engine.sampling.outcome import Outcome, take_generation_logits, take_prompt_logits
from lmi_plugins.torch_engine.sampling.sampler import Sampler
from lmi_plugins.torch_engine.sequences.sequence import Sequence
from lmi_plugins.torch_engine.sequences.step_batch import Chunk, StepBatch
from lmi_plugins.torch_engine.sequences.token_texts import TokenTexts
from lmi_plugins.torch_engine.speculation.speculation import Speculation
from lmi_plugins.torch_engine.speculation.verification import Check, verify

logger = logging.getLogger(__name__)


NO_TOKEN = "the model's logits are not numbers, or the request's parameters exclude all tokens"


class OutputProcessor:
    """The last part of a step, which adds chosen tokens to their sequences and ends those that they finish."""

    def __init__(
        self,
        requests: ActiveRequests,
        texts: TokenTexts,
        sampler: Sampler,
        speculation: Speculation,
        prefix_cache: PrefixCache | None,
    ) -> None:
        self._requests = requests
        self._texts = texts
        self._sampler = sampler
        self._speculation = speculation
        self._prefix_cache = prefix_cache

    def publish(
        self, batch: StepBatch, logits: torch.Tensor, outcomes: Items[Outcome], checks: Items[Check]
    ) -> Results:
        """Return the new final steps by request, given an outcome for each chunk, and the drafts to verify."""
        pairs = zip(batch.chunks, outcomes, strict=True)
        results = [result for chunk, outcome in pairs if (result := self._advance(chunk, outcome)) is not None]
        if checks:
            results += self._verify(checks)
        for search, rows in _beam_rows(batch):
            results += self._search(search, logits[rows])
        return results

    def _advance(self, chunk: Chunk, outcome: Outcome) -> tuple[str, Result] | None:
        """Mark a chunk as computed, and add the token chosen after it, if any."""
        sequence = chunk.sequence
        if sequence.request_id not in self._requests:
            return None  # another sequence of the request has failed in this step
        sequence.num_computed_tokens = chunk.end - chunk.num_draft_tokens
        if self._prefix_cache is not None and chunk.group.caches_blocks:
            self._prefix_cache.keep(sequence)
        sequence.prompt_log_probs += outcome.prompt_log_probs
        sequence.prompt_ranks += outcome.prompt_ranks
        sequence.prompt_top_logprobs += outcome.prompt_top_logprobs
        return None if outcome.token_id is None else self._take(chunk, outcome)

    def _take(self, chunk: Chunk, outcome: Outcome) -> tuple[str, Result] | None:
        """Add the chosen token to the chunk's sequence; return the new final steps."""
        assert outcome.token_id is not None
        sequence = chunk.sequence
        if sequence.request_id not in self._requests:
            return None  # another sequence of the request has failed in this step
        if sequence.failure is not None or not math.isfinite(outcome.log_prob):
            return self._requests.fail(sequence.request_id, sequence.failure or NO_TOKEN)
        try:
            step = self._extend(chunk, outcome.token_id, outcome)
        except Exception as error:
            logger.exception("Request %s failed", sequence.request_id)
            return self._requests.fail(sequence.request_id, str(error))
        if step is None:
            return None
        step.stop_sequence = sequence.stream.stop_sequence
        return (sequence.request_id, step)

    def _extend(self, chunk: Chunk, token_id: int, outcome: Outcome) -> GenerationStep | None:
        """Return the step for a sequence's next token; None if no text becomes final."""
        sequence = chunk.sequence
        sequence.token_ids.append(token_id)
        top_tokens = self._texts.top_tokens(outcome.top_logprobs)
        tokens = sequence.stream.push(token_id, outcome.log_prob, top_tokens, outcome.rank)
        reason = _finish_reason(sequence)
        prefill = prompt_logits = None
        if not sequence.started:
            prefill, prompt_logits = self._texts.prefill(sequence), take_prompt_logits(sequence)
            sequence.started = True
        if reason is not None:
            tokens += sequence.stream.finish()
            self._requests.end(chunk.group)
            if sequence.acceptance.drafted:
                self._speculation.record(sequence)
        if not tokens and reason is None and prefill is None and prompt_logits is None:
            return None
        generation_logits = take_generation_logits(sequence, len(tokens))
        cached, sequence.num_cached_tokens = sequence.num_cached_tokens, None  # each is reported only once
        queued, sequence.queue_time = sequence.queue_time, None
        return GenerationStep(
            tokens,
            reason,
            sequence.index,
            prefill,
            prompt_logits,
            generation_logits,
            cached_tokens=cached,
            queue_time=queued,
        )

    def _verify(self, checks: Items[Check]) -> Results:
        """Add the accepted tokens of drafts, and those that the model chose after them."""
        failed: Results = []
        try:
            verify(checks, self._sampler, self._take)
        except Exception as error:
            logger.exception("Checking the drafts of %d requests failed", len(checks))
            failed = self._requests.fail_all([check.sequence.request_id for check in checks], str(error))
        return [result for check in checks for result in merge_steps(check.results)] + failed

    def _search(self, search: BeamSearch, logits: torch.Tensor) -> Results:
        """Advance a beam search by its beams' logits, [beams, vocabulary]; return its sequences when it is done."""
        request_id = search.request_id
        try:
            steps = search.advance(logits)
        except Exception as error:
            logger.exception("Request %s failed", request_id)
            return [self._requests.fail(request_id, str(error))]
        if steps:
            self._requests.end(search)
        return [(request_id, step) for step in steps]


def _finish_reason(sequence: Sequence) -> FinishReason | None:
    """Return why a sequence ends with its latest token, if it does."""
    parameters = sequence.parameters
    # A guided text is complete at its end, so it cannot be continued.
    ignore_end = parameters.ignore_end and parameters.guide is None
    if sequence.token_ids[-1] in sequence.eos_token_ids and not ignore_end:
        return "eos_token"
    if sequence.stream.stopped:
        return "stop_sequence"
    if len(sequence.token_ids) >= sequence.max_length:
        return "length"
    return "stop_sequence" if sequence.repeats_itself else None


def _beam_rows(batch: StepBatch) -> list[tuple[BeamSearch, list[int]]]:
    """Return the searches with fully computed beams, and each beam's row in the logits."""
    rows: dict[BeamSearch, list[int]] = {}
    for chunk in batch.chunks:
        group = chunk.group
        if isinstance(group, BeamSearch) and group not in rows and group.sequences[0] in batch.next_token_rows:
            rows[group] = [batch.next_token_rows[beam] for beam in group.sequences]
    return list(rows.items())
