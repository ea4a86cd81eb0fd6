"""A batch knows the rows of each chunk, and whose next token is chosen by which row of the logits."""

from typing import Any

from lmi_plugins.torch_engine.sequences.draft import Draft
from lmi_plugins.torch_engine.sequences.sequence import Sequence, SequenceGroup
from lmi_plugins.torch_engine.sequences.step_batch import Chunk, StepBatch
from tests.plugins.torch_engine.bare_sequences import PROMPT, sequence


def chunk(start: int, end: int, generated: tuple[int, ...] = (), **parameters: Any) -> Chunk:
    made = sequence(generated, **parameters)
    return Chunk(SequenceGroup(made), made, start, end)


def drafted(chunk: Chunk, *token_ids: int) -> Chunk:
    chunk.draft = Draft(list(token_ids))
    chunk.sequence.token_ids += token_ids
    chunk.end += len(token_ids)
    return chunk


def rows_of(batch: StepBatch, of: Sequence) -> int | None:
    return batch.next_token_rows.get(of)


def test_every_chunk_has_rows_of_its_own() -> None:
    decode, draft = chunk(4, 5, (7,)), drafted(chunk(5, 6, (7, 8)), 1, 2)
    whole, part = chunk(0, 4, prompt_log_probs=True), chunk(1, 3)
    batch = StepBatch([decode, draft, whole, part])
    assert batch.num_tokens == 10
    assert batch.token_rows == [slice(0, 1), slice(1, 4), slice(4, 8), slice(8, 10)]
    assert batch.logits_rows == [slice(0, 1), slice(1, 4), slice(4, 8), slice(8, 8)]
    assert batch.logits_indices == [0, 1, 2, 3, 4, 5, 6, 7]
    assert batch.token_ids == [7, 8, 1, 2, *PROMPT, *PROMPT[1:3]]
    assert batch.positions == [4, 5, 6, 7, 0, 1, 2, 3, 1, 2]
    assert [rows_of(batch, each.sequence) for each in (decode, draft, whole, part)] == [0, 3, 7, None]


def test_only_the_last_logits_of_a_prompt_are_wanted_where_nobody_asks_for_more() -> None:
    first, last = chunk(0, 4), chunk(2, 4)
    batch = StepBatch([first, last])
    assert batch.logits_indices == [3, 5]
    assert [rows_of(batch, each.sequence) for each in (first, last)] == [0, 1]


def test_rows_stay_when_sequences_go_on() -> None:
    decode = chunk(4, 5, (7,))
    batch = StepBatch([decode])
    decode.sequence.token_ids.append(9)
    assert rows_of(batch, decode.sequence) == 0
    assert batch.token_ids == [7]
