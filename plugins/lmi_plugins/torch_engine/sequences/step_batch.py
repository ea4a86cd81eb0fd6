"""The batch of one step, with the rows of each chunk in its tensors."""

from collections.abc import Sequence as Items
from dataclasses import dataclass

from lmi_plugins.torch_engine.sequences.draft import Draft
from lmi_plugins.torch_engine.sequences.sequence import Sequence, SequenceGroup


@dataclass(slots=True)
class Chunk:
    """Consecutive tokens of one sequence: one in decode, more in prefill and with drafted tokens."""

    group: SequenceGroup
    sequence: Sequence
    start: int  # positions in the sequence
    end: int
    draft: Draft | None = None  # its tokens are the last ones of the chunk and of the sequence

    def __len__(self) -> int:
        return self.end - self.start

    @property
    def samples(self) -> bool:
        """Whether to choose the token after the chunk; False within a prompt."""
        return self.end == len(self.sequence.token_ids)

    @property
    def num_draft_tokens(self) -> int:
        return 0 if self.draft is None else len(self.draft)

    @property
    def wants_prompt_log_probs(self) -> bool:
        return self.sequence.parameters.prompt_log_probs and not self.sequence.started

    @property
    def logits_start(self) -> int:
        """The first position with requested logits; they are requested from there to the end of the chunk."""
        if self.sequence.wants_whole_prompt:
            return self.start
        return self.end - 1 - self.num_draft_tokens if self.samples else self.end


class StepBatch:
    """The packed chunks of one forward pass.

    `token_rows` are a chunk's rows in [tokens, ...] tensors, `logits_rows` its rows in the logits, and
    `next_token_rows` the row in the logits for a sequence's next token. All are fixed when the batch is created; later
    changes to the sequences do not affect them.
    """

    def __init__(self, chunks: Items[Chunk]) -> None:
        self.chunks = chunks
        self.token_rows: list[slice] = []
        self.logits_rows: list[slice] = []
        self.logits_indices: list[int] = []  # indices, among all tokens, of those whose logits are needed
        self.next_token_rows: dict[Sequence, int] = {}  # rows of sequences that are computed completely
        tokens = 0
        for chunk in chunks:
            end = tokens + chunk.end - chunk.start
            first = len(self.logits_indices)
            self.logits_indices.extend(range(tokens + chunk.logits_start - chunk.start, end))
            last = len(self.logits_indices)
            self.token_rows.append(slice(tokens, end))
            self.logits_rows.append(slice(first, last))
            if chunk.samples:
                self.next_token_rows[chunk.sequence] = last - 1
            tokens = end
        self.num_tokens = tokens

    @property
    def token_ids(self) -> list[int]:
        """The token of each row."""
        return [token_id for chunk in self.chunks for token_id in chunk.sequence.token_ids[chunk.start : chunk.end]]

    @property
    def positions(self) -> list[int]:
        """The position in its sequence of each row's token."""
        return [position for chunk in self.chunks for position in range(chunk.start, chunk.end)]
