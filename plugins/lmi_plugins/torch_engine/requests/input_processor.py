"""The sequences of a new request, and the refusal of requests that can never run."""

from collections.abc import Iterable
from dataclasses import dataclass
from hashlib import sha256
from itertools import compress

import torch
from transformers import PreTrainedModel

from lmi_core.errors import ContextLengthExceeded, InvalidParameter
from lmi_core.generation.output import Given
from lmi_core.texts.bad_texts.text_ban import TextBan, TokenIndexes
from lmi_plugins.torch_engine.adapters.store import require_store
from lmi_plugins.torch_engine.beams.search import BeamSearch, check_beams
from lmi_plugins.torch_engine.cache.block_pool import BlockPool
from lmi_plugins.torch_engine.messages.requests import EngineRequest, ParameterNames, SamplingParameters
from lmi_plugins.torch_engine.messages.tensors import to_bytes
from lmi_plugins.torch_engine.model.model_runner import ModelRunner
from lmi_plugins.torch_engine.model.soft_prompt import with_soft_prompt
from lmi_plugins.torch_engine.sequences.adapter import Adapter
from lmi_plugins.torch_engine.sequences.draft import Draft, read_draft
from lmi_plugins.torch_engine.sequences.sequence import Sequence, SequenceGroup
from lmi_plugins.torch_engine.sequences.token_texts import TokenTexts

FLOAT32 = 4  # bytes


@dataclass(frozen=True, slots=True)
class EngineLimits:
    """The sizes of a loaded model and of its cache."""

    max_length: int  # of a prompt and its output, in tokens
    max_batch_size: int  # sequences that run at the same time
    vocabulary: int  # token ids
    cache_bytes: int  # maximum size of keys and values
    eos_token_ids: frozenset[int]  # of the model


@dataclass(frozen=True, slots=True)
class InputProcessor:
    """The conversion of requests into sequence groups for one model."""

    model: PreTrainedModel
    limits: EngineLimits
    runner: ModelRunner
    pool: BlockPool
    texts: TokenTexts
    token_indexes: TokenIndexes

    def groups(self, request: EngineRequest, names: ParameterNames) -> list[SequenceGroup]:
        """Return the groups of a request.

        Raise InvalidParameter, ContextLengthExceeded or AdapterNotFound if it can never run.
        """
        soft_prompt: torch.Tensor | None = None
        if request.soft_prompt is not None:
            request, soft_prompt = with_soft_prompt(request, request.soft_prompt, self.model)
        self._check(request, 0 if soft_prompt is None else len(soft_prompt))
        parameters = request.parameters
        adapter = None if request.adapter is None else require_store(self.runner.adapters).get(request.adapter)
        ban = self._text_ban(parameters)
        draft: Draft | None = None
        if request.draft_ids or request.draft_logits is not None:
            draft = read_draft(request, self.limits.vocabulary, self.runner.rewinds, names)
        sequences = [self._sequence(request, index) for index in range(parameters.num_samples)]
        for sequence in sequences:
            _condition(sequence, adapter, soft_prompt)
            sequence.draft = draft
            sequence.state.text_ban = ban
            if self.runner.rope is not None:
                self.runner.rope.prepare(sequence)
        if parameters.num_beams > 1:
            check_beams(sequences[0], self.pool, self.limits.max_batch_size, self.runner.paged, names)
            return [BeamSearch(sequences[0], self.pool, self.texts)]
        for sequence, given in zip(sequences, request.given, strict=False):
            _resume(sequence, given)
        unfinished = [not given.finished for given in request.given] or [True] * len(sequences)
        return [SequenceGroup(sequence) for sequence in compress(sequences, unfinished)]

    def _sequence(self, request: EngineRequest, index: int) -> Sequence:
        stream = self.texts.stream(request.prompt_ids, request.parameters)
        sequence = Sequence.of(request, self.limits.max_length, stream, index)
        own = request.parameters.eos_token_ids
        sequence.eos_token_ids = self.limits.eos_token_ids if own is None else frozenset(own)
        sequence.started = index > 0  # the first sequence alone reports on the prompt
        return sequence

    def _text_ban(self, parameters: SamplingParameters) -> TextBan | None:
        """Return the ban of the request's bad texts, if any."""
        if not parameters.bad_texts:
            return None
        return self.token_indexes.ban(
            parameters.bad_texts,
            skip_special_tokens=parameters.skip_special_tokens,
            spaces_between_special_tokens=parameters.spaces_between_special_tokens,
            ignore_end=parameters.ignore_end,
        )

    def _check(self, request: EngineRequest, virtual_tokens: int) -> None:
        """Raise InvalidParameter or ContextLengthExceeded for a prompt or parameters that do not fit the model."""
        length, max_length = len(request.prompt_ids), self.limits.max_length
        if not length:
            raise InvalidParameter("the prompt is empty: it must have at least one token")
        if length >= max_length:
            raise ContextLengthExceeded(
                f"the prompt has {length} tokens, but the context has room for {max_length}, including those generated"
            )
        known = self.limits.vocabulary + virtual_tokens
        if max(request.prompt_ids) >= known or min(request.prompt_ids) < 0:
            raise InvalidParameter(f"the prompt has token ids outside the vocabulary of {known}")
        _check_parameters(request.parameters, self.limits.vocabulary)


def _condition(sequence: Sequence, adapter: Adapter | None, soft_prompt: torch.Tensor | None) -> None:
    """Set a sequence's adapter, soft prompt and cache salt. Only sequences with the same ones share its blocks."""
    sequence.adapter = adapter
    sequence.soft_prompt = soft_prompt
    if adapter is not None:
        sequence.variant += ("adapter", adapter.serial)
    if soft_prompt is not None:
        sequence.variant += ("soft prompt", sha256(to_bytes(soft_prompt)).hexdigest())
    if sequence.parameters.cache_salt is not None:
        sequence.variant += ("salt", sequence.parameters.cache_salt)


def _resume(sequence: Sequence, given: Given) -> None:
    """Restore a sequence with its given tokens, as if it had been preempted."""
    sequence.started = sequence.started or given.begun
    if not given.token_ids:
        return
    sequence.token_ids += given.token_ids
    sequence.draft = None
    if sequence.outgrown:
        sequence.outgrow()
    for token_id in given.token_ids:
        sequence.stream.push(token_id)
    sequence.stream.finish()  # send the text held back, in which no stop sequence begins
    if sequence.generator is not None:  # it drew one number per token
        torch.rand(len(given.token_ids), dtype=torch.float64, generator=sequence.generator)


def _check_parameters(parameters: SamplingParameters, vocabulary: int) -> None:
    """Raise InvalidParameter for values that do not fit the vocabulary, or each other."""
    _check_ids("`logit_bias`", parameters.logit_bias, vocabulary)
    for name, sequences in (
        ("`bad_sequences`", parameters.bad_sequences),
        ("`stop_token_ids`", parameters.stop_token_sequences),
    ):
        if not all(sequences):
            raise InvalidParameter(f"{name} must each contain at least one token id")
        _check_ids(name, (token_id for sequence in sequences for token_id in sequence), vocabulary)
    _check_ids("the end-of-sequence tokens", parameters.eos_token_ids or (), vocabulary)
    _check_ids("`allowed_token_ids`", parameters.allowed_ids or (), vocabulary)
    _check_ids("`logprob_token_ids`", parameters.top_ids, vocabulary)
    if parameters.reasoning_limit is not None:
        markers = parameters.reasoning_limit.starts + parameters.reasoning_limit.ends
        _check_ids("`reasoning_budget`", (token_id for marker in markers for token_id in marker), vocabulary)
    bias = parameters.embedding_bias
    if bias is not None and len(bias) != vocabulary * FLOAT32:
        raise InvalidParameter(
            f"the embedding bias must have {vocabulary} numbers, one for each token. Given: {len(bias) / FLOAT32:g}"
        )
    if parameters.num_prompt_top_tokens and not parameters.prompt_log_probs:
        raise InvalidParameter("the most likely tokens of the prompt require its log probabilities")
    if parameters.num_samples < 1:
        raise InvalidParameter(f"the number of sequences must be at least 1. Given: {parameters.num_samples}")


def _check_ids(name: str, ids: Iterable[int], vocabulary: int) -> None:
    for token_id in ids:
        if not 0 <= token_id < vocabulary:
            raise InvalidParameter(f"{name} must contain token ids from 0 to {vocabulary - 1}. Given: {token_id}")
