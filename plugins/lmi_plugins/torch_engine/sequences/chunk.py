"""The part of one sequence that one step computes."""

from dataclasses import dataclass

from lmi_plugins.torch_engine.sequences.draft import Draft
from lmi_plugins.torch_engine.sequences.sequence import Sequence
from lmi_plugins.torch_engine.sequences.sequence_group import SequenceGroup


@dataclass(slots=True)
class Chunk:
    """Consecutive tokens of one sequence: one in decode, more in prefill and where drafted tokens are checked."""

    group: SequenceGroup
    sequence: Sequence
    start: int  # positions in the sequence
    end: int
    draft: Draft | None = None  # whose tokens are the last ones of the chunk and of its sequence

    def __len__(self) -> int:
        return self.end - self.start

    @property
    def token_ids(self) -> list[int]:
        return self.sequence.token_ids[self.start : self.end]

    @property
    def samples(self) -> bool:
        """Whether the token after the chunk is to be chosen; not so within a prompt."""
        return self.end == len(self.sequence.token_ids)

    @property
    def num_draft_tokens(self) -> int:
        return 0 if self.draft is None else len(self.draft)

    @property
    def wants_prompt_log_probs(self) -> bool:
        return self.sequence.parameters.prompt_log_probs and not self.sequence.started

    @property
    def logits_start(self) -> int:
        """The first position whose logits are wanted; they are wanted from there to the end of the chunk."""
        if self.sequence.wants_whole_prompt:
            return self.start
        return self.end - 1 - self.num_draft_tokens if self.samples else self.end
