"""A request as it runs, and the part of it that one step computes."""

from copy import copy
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import torch

from lmi_core.texts.token_stream import TokenStream
from lmi_plugins.torch_engine.adapters.adapter import Adapter
from lmi_plugins.torch_engine.sampling.processor_state import ProcessorState
from lmi_plugins.torch_engine.speculation.draft import Acceptance, Draft
from lmi_plugins.torch_engine.worker.messages import EngineRequest, SamplingParameters

if TYPE_CHECKING:
    from lmi_plugins.torch_engine.beams.search import BeamSearch
    from lmi_plugins.torch_engine.sampling.logits_processor import LogitsProcessor

SEED_STEP = 0x9E3779B97F4A7C15  # odd, so that no two sequences of a request get the same seed

Likeliest = list[tuple[int, float]]  # ids and log probs of the likeliest tokens in one place, likeliest first


def _seed(seed: int, index: int) -> int:
    """The first sequence's is the request's own."""
    return (seed + index * SEED_STEP) % 2**63


@dataclass(slots=True, eq=False)
class Sequence:
    """A request's tokens, how far they are computed, and where their keys and values are."""

    request_id: str
    parameters: SamplingParameters
    token_ids: list[int]  # the prompt's and the generated ones
    prompt_length: int
    end: int  # the length at which it is as long as was asked for, or as the context
    stream: TokenStream
    generator: torch.Generator | None = None  # None: greedy, or sampled without a seed
    computed: int = 0  # so many of the tokens have their keys and values in the cache
    blocks: list[int] = field(default_factory=list)  # of the cache, in order
    row_cache: object = None  # transformers' cache, where the row runner does the work
    prompt_log_probs: list[float] = field(default_factory=list)  # of the second and later tokens of the prompt
    prompt_ranks: list[int] = field(default_factory=list)  # of the same tokens
    prompt_top_tokens: list[Likeliest] = field(default_factory=list)  # in their places
    started: bool = False  # its first step was handed out
    adapter: Adapter | None = None
    soft_prompt: torch.Tensor | None = None  # [virtual tokens, hidden], of the ids from the vocabulary's size on
    # What its keys and values depend on besides its tokens: sequences that differ in it can share none.
    variant: tuple[object, ...] = ()
    block_keys: list[bytes] = field(default_factory=list)  # of its full blocks, in the prefix cache
    kept: int = 0  # so many of its blocks can be found in the prefix cache
    rows: int = 1  # of the batch, where it will go on as several
    search: "BeamSearch | None" = None  # whose beam it is
    draft: Draft | None = None  # that its request brought, until it is checked
    draft_computed: int = 0  # the same as `computed`, for the draft model
    acceptance: Acceptance = field(default_factory=Acceptance)
    # Where they are asked for, the model's own logits that were not handed out yet, on the CPU:
    prompt_logits: list[torch.Tensor] = field(default_factory=list)  # each [tokens, vocabulary]
    generation_logits: list[torch.Tensor] = field(default_factory=list)  # each [vocabulary]
    index: int = 0  # among the sequences of its request
    end_ids: frozenset[int] = frozenset()  # of end-of-sequence tokens
    processors: "tuple[LogitsProcessor, ...] | None" = None  # that its parameters ask for, once that was looked up
    state: ProcessorState = field(default_factory=ProcessorState)
    failure: str | None = None  # why it cannot go on

    @classmethod
    def of(cls, request: EngineRequest, max_length: int, stream: TokenStream, index: int = 0) -> "Sequence":
        parameters, length = request.parameters, len(request.prompt_ids)
        end = min(length + parameters.max_new_tokens, max_length)
        sequence = cls(request.request_id, parameters, list(request.prompt_ids), length, end, stream)
        sequence.index = index
        if not parameters.greedy and parameters.seed is not None:
            sequence.generator = torch.Generator().manual_seed(_seed(parameters.seed, index))
        return sequence

    @property
    def pending(self) -> int:
        """How many tokens are not computed yet: 1 while it decodes."""
        return len(self.token_ids) - self.computed

    @property
    def prompt_ids(self) -> list[int]:
        return self.token_ids[: self.prompt_length]

    @property
    def company(self) -> "list[Sequence]":
        """Those that run, wait and leave the batch together: itself, or all beams of its search."""
        return [self] if self.search is None else self.search.beams

    @property
    def wants_whole_prompt(self) -> bool:
        """Whether every position of the prompt has to be computed, also those that the prefix cache holds."""
        parameters = self.parameters
        return not self.started and (parameters.prompt_log_probs or parameters.prompt_logits)

    def fork(self, blocks: list[int]) -> "Sequence":
        """Another one that goes on from the same tokens, with these blocks."""
        other = copy(self)
        other.token_ids, other.blocks, other.block_keys = self.token_ids.copy(), blocks, self.block_keys.copy()
        other.prompt_log_probs, other.prompt_top_tokens = self.prompt_log_probs.copy(), self.prompt_top_tokens.copy()
        other.prompt_ranks = self.prompt_ranks.copy()
        other.prompt_logits, other.generation_logits = self.prompt_logits.copy(), self.generation_logits.copy()
        other.state = self.state.fork()
        return other

    def restart(self) -> None:
        """Forget what was computed. The tokens stay, and so does the state of the random generator."""
        self.computed = self.draft_computed = self.kept = 0
        self.row_cache = None
        if not self.started:
            self.prompt_log_probs.clear()
            self.prompt_ranks.clear()
            self.prompt_top_tokens.clear()
            self.prompt_logits.clear()


@dataclass(slots=True)
class Chunk:
    """The tokens of one sequence that one step computes: one in decode, more in prefill."""

    sequence: Sequence
    start: int
    end: int
    draft: Draft | None = None  # whose tokens are its last ones, and its sequence's

    def __len__(self) -> int:
        return self.end - self.start

    @property
    def token_ids(self) -> list[int]:
        return self.sequence.token_ids[self.start : self.end]

    @property
    def samples(self) -> bool:
        """Whether the token after it is to be chosen; not so within a prompt."""
        return self.end == len(self.sequence.token_ids)

    @property
    def wants_prompt_log_probs(self) -> bool:
        return self.sequence.parameters.prompt_log_probs and not self.sequence.started

    @property
    def wants_prompt_logits(self) -> bool:
        return self.sequence.parameters.prompt_logits and not self.sequence.started

    @property
    def logits_start(self) -> int:
        """The first position whose logits are wanted; the last one is the chunk's end, if there are any."""
        if self.sequence.wants_whole_prompt:
            return self.start
        if not self.samples:
            return self.end
        return self.end - 1 if self.draft is None else self.end - 1 - len(self.draft)
