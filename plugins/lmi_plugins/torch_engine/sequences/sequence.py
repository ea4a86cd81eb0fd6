"""One sequence of tokens while it is generated."""

from collections.abc import Callable
from collections.abc import Sequence as Items
from copy import copy
from dataclasses import dataclass, field
from time import monotonic
from typing import ClassVar

import torch

from lmi_core.errors import LmiError
from lmi_core.generation.parameters import seed_of
from lmi_core.generation.repetition import ends_in_repetition
from lmi_core.texts.token_stream import TokenStream
from lmi_plugins.torch_engine.messages.requests import EngineRequest, SamplingParameters
from lmi_plugins.torch_engine.sequences.adapter import Adapter
from lmi_plugins.torch_engine.sequences.draft import Acceptance, Draft
from lmi_plugins.torch_engine.sequences.processor_state import ProcessorState
from lmi_plugins.torch_engine.sequences.top_logprobs import TopLogprobs

# Returns new scores for the sequences of requests that need it, given their scores, [rows, vocabulary], which stay
# unchanged. What it remembers of a sequence is in `Sequence.state`.
LogitsProcessor = Callable[[torch.Tensor, Items["Sequence"]], torch.Tensor]


@dataclass(slots=True, eq=False)
class Sequence:
    """The tokens of a prompt and of one continuation, the number of computed ones, and their cache blocks."""

    request_id: str
    parameters: SamplingParameters
    token_ids: list[int]  # prompt and generated tokens
    prompt_length: int
    max_length: int  # the requested length, or the context length if that is smaller
    stream: TokenStream
    generator: torch.Generator | None = None  # None: greedy decoding, or sampling without a seed
    num_computed_tokens: int = 0  # tokens whose keys and values are in the cache
    block_table: list[int] = field(default_factory=list)  # cache blocks, in token order
    row_cache: object = None  # what the runner stores outside the blocks: transformers' cache, or a row of it
    prompt_log_probs: list[float] = field(default_factory=list)  # starting with the prompt's second token
    prompt_ranks: list[int] = field(default_factory=list)  # of the same tokens
    prompt_top_logprobs: list[TopLogprobs] = field(default_factory=list)  # of the same tokens
    started: bool = False  # whether its first step has been delivered
    adapter: Adapter | None = None
    soft_prompt: torch.Tensor | None = None  # [virtual tokens, hidden], for ids from the vocabulary's size upwards
    # Everything besides tokens that determines keys and values: sequences share blocks only if it is equal.
    variant: tuple[object, ...] = ()
    recompute_beyond: int | None = None  # a length in tokens beyond which keys and values change
    block_keys: list[bytes] = field(default_factory=list)  # of its full blocks, in the prefix cache
    num_cached_blocks: int = 0  # number of its blocks in the prefix cache
    checkpoints: list[int] = field(default_factory=list)  # lengths at which its state is kept
    latest_state: bytes | None = None  # the block key of its latest kept state, which the next one replaces
    num_cached_tokens: int | None = None  # found there at first admission; reported once
    arrived: float = field(default_factory=monotonic)
    queue_time: float | None = None  # seconds until first admission; reported once
    draft: Draft | None = None  # from its request, until it is verified
    num_draft_computed_tokens: int = 0  # `num_computed_tokens` of the draft model
    acceptance: Acceptance = field(default_factory=Acceptance)
    # The model's own logits that have not been delivered yet, on the CPU, if requested:
    prompt_logits: list[torch.Tensor] = field(default_factory=list)  # each [tokens, vocabulary]
    generation_logits: list[torch.Tensor] = field(default_factory=list)  # each [vocabulary]
    index: int = 0  # among the sequences of its request
    eos_token_ids: frozenset[int] = frozenset()
    processors: tuple[LogitsProcessor, ...] | None = None  # set when the parameters have been examined
    state: ProcessorState = field(default_factory=ProcessorState)
    failure: LmiError | str | None = None  # why it cannot continue; set by a logits processor

    @classmethod
    def of(cls, request: EngineRequest, max_length: int, stream: TokenStream, index: int = 0) -> "Sequence":
        """Create a request's sequence with this index, in a context of `max_length` tokens."""
        parameters, length = request.parameters, len(request.prompt_ids)
        end = min(length + parameters.max_new_tokens, max_length)
        sequence = cls(request.request_id, parameters, list(request.prompt_ids), length, end, stream)
        sequence.index = index
        if not parameters.greedy and parameters.seed is not None:
            sequence.generator = torch.Generator().manual_seed(seed_of(parameters.seed, index))
        return sequence

    @property
    def prompt_ids(self) -> list[int]:
        return self.token_ids[: self.prompt_length]

    @property
    def wants_whole_prompt(self) -> bool:
        """Whether every position of the prompt must be computed, including those in the prefix cache."""
        parameters = self.parameters
        return not self.started and (parameters.prompt_log_probs or parameters.prompt_logits)

    @property
    def repeats_itself(self) -> bool:
        """Whether the generated tokens end with a repetition that ends the request."""
        asked, generated = self.parameters.repetition, len(self.token_ids) - self.prompt_length
        if asked is None or generated < self.parameters.min_length:
            return False
        return ends_in_repetition(self.token_ids[self.prompt_length :], asked.shortest, asked.longest, asked.count)

    def fork(self, block_table: list[int]) -> "Sequence":
        """Return another sequence that continues from the same tokens, with its own block table."""
        other = copy(self)
        other.block_table = block_table
        other.token_ids, other.block_keys = self.token_ids.copy(), self.block_keys.copy()
        other.prompt_log_probs, other.prompt_ranks = self.prompt_log_probs.copy(), self.prompt_ranks.copy()
        other.prompt_top_logprobs = self.prompt_top_logprobs.copy()
        other.prompt_logits, other.generation_logits = self.prompt_logits.copy(), self.generation_logits.copy()
        other.state = self.state.fork()
        return other

    @property
    def outgrown(self) -> bool:
        """Whether its computed state is only valid for a shorter sequence."""
        return self.recompute_beyond is not None and len(self.token_ids) > self.recompute_beyond

    def outgrow(self) -> None:
        """Discard the state that is only valid for a shorter sequence."""
        self.recompute_beyond = None
        self.variant += ("outgrown",)
        self.block_keys.clear()
        self.restart()

    def restart(self) -> None:
        """Discard the computed state, except for the tokens and the random generator."""
        self.num_computed_tokens = self.num_draft_computed_tokens = self.num_cached_blocks = 0
        self.row_cache = None
        if not self.started:
            self.prompt_log_probs.clear()
            self.prompt_ranks.clear()
            self.prompt_top_logprobs.clear()
            self.prompt_logits.clear()


class SequenceGroup:
    """Sequences of one request that are admitted, preempted and removed together: a sample, or the beams of a search.

    The samples of a request are separate groups, because they can run at different times.
    """

    sampled: ClassVar[bool] = True  # whether the sampler chooses the next tokens of its sequences

    def __init__(self, sequence: Sequence) -> None:
        self.sequences = [sequence]  # only one while the group waits
        self.num_rows = 1  # rows of the batch that it takes, or will take once it has branched

    @property
    def request_id(self) -> str:
        return self.sequences[0].request_id

    @property
    def caches_blocks(self) -> bool:
        """Whether its computed blocks are worth keeping in the prefix cache."""
        return True

    def restart(self) -> None:
        """Reset the group after a preemption that released all blocks of its sequences."""
