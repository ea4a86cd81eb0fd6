"""The sequences of a new request, and the refusal of requests that can never run."""

from dataclasses import dataclass
from itertools import compress

from transformers import PreTrainedModel

from lmi_core.errors import ContextLengthExceeded, InvalidParameter
from lmi_core.texts.bad_texts.text_ban import TextBan
from lmi_core.texts.bad_texts.token_indexes import TokenIndexes
from lmi_plugins.torch_engine.adapters.store import AdapterStore, require_store
from lmi_plugins.torch_engine.beams.checks import check_beams
from lmi_plugins.torch_engine.beams.search import BeamSearch
from lmi_plugins.torch_engine.cache.block_pool import BlockPool
from lmi_plugins.torch_engine.messages.parameter_names import ParameterNames
from lmi_plugins.torch_engine.messages.requests import EngineRequest, SamplingParameters
from lmi_plugins.torch_engine.model.soft_prompt import with_soft_prompt
from lmi_plugins.torch_engine.requests.engine_limits import EngineLimits
from lmi_plugins.torch_engine.requests.parameter_checks import check_parameters
from lmi_plugins.torch_engine.sequences.conditioning import condition
from lmi_plugins.torch_engine.sequences.continuation import go_on
from lmi_plugins.torch_engine.sequences.draft import read_draft
from lmi_plugins.torch_engine.sequences.sequence import Sequence
from lmi_plugins.torch_engine.sequences.sequence_group import SequenceGroup
from lmi_plugins.torch_engine.sequences.token_texts import TokenTexts


@dataclass(frozen=True, slots=True)
class InputProcessor:
    """What turns a request into sequence groups for one model."""

    model: PreTrainedModel
    limits: EngineLimits
    paged: bool  # see ModelRunner
    adapters: AdapterStore | None
    pool: BlockPool
    texts: TokenTexts
    token_indexes: TokenIndexes

    def groups(self, request: EngineRequest, names: ParameterNames) -> list[SequenceGroup]:
        """Return the groups of a request.

        Raise InvalidParameter, ContextLengthExceeded or AdapterNotFound if it can never run.
        """
        request, soft_prompt = with_soft_prompt(request, self.model)
        self._check(request, 0 if soft_prompt is None else len(soft_prompt))
        parameters = request.parameters
        adapter = None if request.adapter is None else require_store(self.adapters).get(request.adapter)
        ban = self._text_ban(parameters)
        draft = read_draft(request, self.limits.vocabulary, self.paged, names)
        sequences = [self._sequence(request, index) for index in range(parameters.num_samples)]
        for sequence in sequences:
            condition(sequence, adapter, soft_prompt)
            sequence.draft = draft
            sequence.state.text_ban = ban
        if parameters.num_beams > 1:
            check_beams(sequences[0], self.pool.size, self.limits.max_batch_size, self.paged, names)
            return [BeamSearch(sequences[0], self.pool, self.texts)]
        for sequence, given in zip(sequences, request.given, strict=False):
            go_on(sequence, given)
        unfinished = [not given.finished for given in request.given] or [True] * len(sequences)
        return [SequenceGroup(sequence) for sequence in compress(sequences, unfinished)]

    def _sequence(self, request: EngineRequest, index: int) -> Sequence:
        stream = self.texts.stream(request.prompt_ids, request.parameters)
        sequence = Sequence.of(request, self.limits.max_length, stream, index)
        own = request.parameters.eos_token_ids
        sequence.eos_token_ids = self.limits.eos_token_ids if own is None else frozenset(own)
        sequence.started = index > 0  # what is told of the prompt comes once
        return sequence

    def _text_ban(self, parameters: SamplingParameters) -> TextBan | None:
        """Return what keeps the request's bad texts out, if it has any."""
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
        check_parameters(request.parameters, self.limits.vocabulary)
