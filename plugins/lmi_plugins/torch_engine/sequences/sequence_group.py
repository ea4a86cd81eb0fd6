"""Sequences that are scheduled as one."""

from typing import ClassVar

from lmi_plugins.torch_engine.sequences.sequence import Sequence


class SequenceGroup:
    """Sequences of one request that are admitted, preempted and removed together: a sample, or the beams of a search.

    The samples of a request are groups of their own, as they can run at different times.
    """

    sampled: ClassVar[bool] = True  # the sampler chooses the next tokens of its sequences

    def __init__(self, sequence: Sequence) -> None:
        self.sequences = [sequence]  # a single one while the group waits
        self.num_rows = 1  # of the batch that it takes, or will take as soon as it has branched

    @property
    def request_id(self) -> str:
        return self.sequences[0].request_id

    @property
    def caches_blocks(self) -> bool:
        """Whether the blocks that it has computed are worth keeping in the prefix cache."""
        return True

    def restart(self) -> None:
        """Get ready to wait again, after a preemption that has released every block of its sequences."""
