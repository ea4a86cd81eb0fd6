"""Beam search outside of vLLM's engine, which has none: each token of a beam is a separate request.

The engine's prefix cache contains common prefixes of beams. They are ranked as in the torch engine and transformers.
"""

import asyncio
import math
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from heapq import nlargest
from typing import NamedTuple, TypeVar

from lmi_core.errors import GenerationFailed
from lmi_core.generation.hypotheses import Hypotheses
from lmi_core.generation.output import FinishReason, GenerationStep, Token
from lmi_core.generation.parameters import ExtendedParameters
from lmi_core.texts.token_writer import TokenWriter
from lmi_plugins.vllm_engine.library import RequestOutput, RequestOutputKind, SamplingParams
from lmi_plugins.vllm_engine.outputs.generation import LogProbs, prefill, queue_time, read, token_stream

T = TypeVar("T")

# Returns vLLM's output for the one token after the given ones.
NextToken = Callable[[list[int], SamplingParams], Awaitable[RequestOutput]]


@dataclass(frozen=True, slots=True)
class Beam:
    """A sequence of generated tokens, unfinished or finished."""

    token_ids: list[int]  # generated tokens
    places: list[LogProbs]  # log probs at each of them
    score: float = 0.0  # sum of the log probs
    reason: FinishReason | None = None


class Candidate(NamedTuple):
    """A beam and one more token for it."""

    score: float
    beam: Beam
    token_id: int
    place: LogProbs


class BeamSearch:
    """The beam search of one request."""

    def __init__(
        self,
        prompt_ids: list[int],
        parameters: ExtendedParameters,
        writer: TokenWriter,
        eos_token_ids: frozenset[int],
        markers: tuple[str, ...] = (),
    ) -> None:
        """`eos_token_ids` are the tokens that end a generation unless the request ignores them."""
        self._prompt_ids = prompt_ids
        self._parameters = parameters
        self._writer = writer
        self._markers = markers
        self._eos_token_ids = frozenset() if parameters.ignore_eos_token else eos_token_ids
        self._all_eos_token_ids = self._eos_token_ids.union(parameters.stop_token_ids or ())
        # Enough for `num_beams` to continue even if every beam has candidates that end it.
        self._num_candidates = max(2, 1 + len(self._all_eos_token_ids)) * parameters.num_beams
        self._finished = Hypotheses[Beam](
            parameters.num_beams, parameters.length_penalty, parameters.early_stopping, parameters.max_new_tokens
        )

    async def steps(self, next_token: NextToken) -> AsyncGenerator[GenerationStep, None]:
        """Yield each whole sequence at the end of the search, best first. Raise LmiError if the engine fails."""
        beams = [Beam([], [])]
        first: RequestOutput | None = None  # output for the prompt alone
        while beams:
            outputs = await _all(next_token(self._prompt_ids + each.token_ids, self._sampling(each)) for each in beams)
            first = first or outputs[0]
            beams = self._advance(beams, [_place(output) for output in outputs])
        for index, beam in enumerate(self._finished.best):
            step = self._step(index, beam)
            if index == 0 and first is not None:
                step.prefill = prefill(first, self._prompt_ids, self._parameters, self._writer)
                step.cached_tokens, step.queue_time = first.num_cached_tokens, queue_time(first)
            yield step

    def _sampling(self, beam: Beam) -> SamplingParams:
        parameters = self._parameters
        return SamplingParams(
            temperature=0.0,
            max_tokens=1,
            logprobs=max(self._num_candidates, parameters.num_top_tokens),
            prompt_logprobs=parameters.num_prompt_top_tokens
            if parameters.wants_prefill and not beam.token_ids
            else None,
            detokenize=False,
            output_kind=RequestOutputKind.FINAL_ONLY,
            skip_clone=True,
        )

    def _advance(self, beams: Sequence[Beam], places: Sequence[LogProbs]) -> list[Beam]:
        """Return the remaining beams; an empty list at the end of the search."""
        num_beams, length = self._parameters.num_beams, len(beams[0].token_ids) + 1
        extended = [self._extend(candidate) for candidate in self._candidates(beams, places)]
        for beam in extended[:num_beams]:
            if beam.reason is not None:
                self._finished.add(beam, beam.score, length)
        going_on = [beam for beam in extended if beam.reason is None][:num_beams]
        return going_on if going_on and self._finished.may_improve(going_on[0].score, length) else []

    def _candidates(self, beams: Sequence[Beam], places: Sequence[LogProbs]) -> list[Candidate]:
        """Return the candidates of a step, best first. Raise GenerationFailed if vLLM has ended a beam."""
        best = nlargest(self._num_candidates, self._all_candidates(beams, places), key=lambda each: each.score)
        if not best or not math.isfinite(best[0].score):
            raise GenerationFailed("the model's logits are not numbers")
        return best

    def _all_candidates(self, beams: Sequence[Beam], places: Sequence[LogProbs]) -> Iterator[Candidate]:
        for beam, place in zip(beams, places, strict=True):
            excluded = (
                self._all_eos_token_ids if len(beam.token_ids) < self._parameters.min_length else frozenset[int]()
            )
            for token_id, each in place.items():
                if token_id not in excluded:
                    yield Candidate(beam.score + each.logprob, beam, token_id, place)

    def _extend(self, candidate: Candidate) -> Beam:
        score, beam, token_id, place = candidate
        token_ids = [*beam.token_ids, token_id]
        return Beam(token_ids, [*beam.places, place], score, self._reason(token_ids))

    def _reason(self, token_ids: list[int]) -> FinishReason | None:
        """Return why a beam with these tokens ends; None if it continues."""
        parameters = self._parameters
        if token_ids[-1] in self._eos_token_ids:
            return "eos_token"
        if (parameters.stop_sequences or parameters.stop_token_ids) and self._stops(token_ids):
            return "stop_sequence"
        return "length" if len(token_ids) >= parameters.max_new_tokens else None

    def _stops(self, token_ids: Iterable[int]) -> bool:
        stream = token_stream(self._writer, self._prompt_ids, self._parameters, self._markers)
        for token_id in token_ids:
            stream.push(token_id, None)
        return stream.stopped

    def _step(self, index: int, beam: Beam) -> GenerationStep:
        stream = token_stream(self._writer, self._prompt_ids, self._parameters, self._markers)
        tokens: list[Token] = []
        for token_id, place in zip(beam.token_ids, beam.places, strict=True):
            tokens += stream.push(token_id, *read(token_id, place, self._parameters.num_top_tokens, self._writer))
        step = GenerationStep(tokens + stream.finish(), beam.reason, index)
        step.stop_sequence = stream.stop_sequence
        return step


def _place(output: RequestOutput) -> LogProbs:
    completion = output.outputs[0]
    if not completion.logprobs:
        raise GenerationFailed(f"vLLM ended a beam with {completion.finish_reason}")
    place: LogProbs = completion.logprobs[0]
    return place


async def _all(work: Iterable[Awaitable[T]]) -> list[T]:
    """Await all; if one fails, or if this is cancelled, cancel the others."""
    tasks = [asyncio.ensure_future(each) for each in work]
    try:
        return await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
