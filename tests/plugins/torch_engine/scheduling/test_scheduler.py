from lmi_core.generation.tokenizer import Detokenizer
from lmi_core.texts.token_stream import TokenStream
from lmi_plugins.torch_engine.cache.block_pool import BLOCK_SIZE, BlockPool
from lmi_plugins.torch_engine.scheduling.prefill_budget import PrefillBudget
from lmi_plugins.torch_engine.scheduling.scheduler import Scheduler
from lmi_plugins.torch_engine.sequences.sequence import Sequence, SequenceGroup
from tests.plugins.torch_engine.tiny_models import request


class NoText(Detokenizer):
    def step(self, token_id: int) -> str:
        return ""


def group(name: str, length: int) -> SequenceGroup:
    asked = request(name, [5] * length, max_new_tokens=1000)
    return SequenceGroup(Sequence.of(asked, 10_000, TokenStream(NoText())))


def step(scheduler: Scheduler) -> list[tuple[str, int, int]]:
    """Return the scheduled chunks, after appending a token to each sequence whose tokens are all computed."""
    chunks = scheduler.schedule()
    for chunk in chunks:
        chunk.sequence.num_computed_tokens = chunk.end
        if chunk.samples:
            chunk.sequence.token_ids.append(5)
    return [(chunk.sequence.request_id, chunk.start, chunk.end) for chunk in chunks]


def make(*groups: SequenceGroup, blocks: int = 100, rows: int = 8, prefill: int = 64) -> tuple[Scheduler, BlockPool]:
    pool = BlockPool(blocks)
    scheduler = Scheduler(pool, rows, PrefillBudget(prefill))
    for each in groups:
        scheduler.add(each)
    return scheduler, pool


def new_tokens(sequence: Sequence) -> int:
    """The number of tokens that are not computed yet."""
    return len(sequence.token_ids) - sequence.num_computed_tokens


def test_prompts_are_cut_to_the_budget_and_decoding_comes_first() -> None:
    scheduler, _ = make(group("a", 5), group("b", 30), group("c", 1), prefill=16)
    assert step(scheduler) == [("c", 0, 1), ("a", 0, 5), ("b", 0, 11)]
    assert step(scheduler) == [("a", 5, 6), ("c", 1, 2), ("b", 11, 27)]
    assert step(scheduler) == [("a", 6, 7), ("c", 2, 3), ("b", 27, 30)]
    assert step(scheduler) == [("a", 7, 8), ("b", 30, 31), ("c", 3, 4)]


def test_a_chunk_of_one_token_comes_with_those_that_decode() -> None:
    scheduler, _ = make(group("a", 15), group("b", 9), prefill=16)
    assert step(scheduler) == [("b", 0, 1), ("a", 0, 15)]


def test_waiting_ones_are_admitted_in_order_when_a_row_is_free() -> None:
    first, second, third = group("a", 3), group("b", 3), group("c", 3)
    scheduler, _ = make(first, second, third, rows=2)
    assert [name for name, *_ in step(scheduler)] == ["a", "b"]
    scheduler.remove(first)
    assert [name for name, *_ in step(scheduler)] == ["b", "c"]


def test_a_large_prompt_is_not_overtaken() -> None:
    scheduler, _ = make(group("a", BLOCK_SIZE), group("b", 4 * BLOCK_SIZE), group("c", 1), blocks=4)
    assert [name for name, *_ in step(scheduler)] == ["a"]
    assert [name for name, *_ in step(scheduler)] == ["a"]


def test_the_latest_to_join_gives_up_its_blocks() -> None:
    first, second = group("a", BLOCK_SIZE - 1), group("b", BLOCK_SIZE)
    scheduler, pool = make(first, second, blocks=3)
    (a,), (b,) = first.sequences, second.sequences
    assert step(scheduler) == [("a", 0, 15), ("b", 0, 16)]
    assert step(scheduler) == [("a", 15, 16), ("b", 16, 17)]
    assert (pool.free, new_tokens(a), new_tokens(b)) == (0, 1, 1)
    assert step(scheduler) == [("a", 16, 17)]
    assert (
        b.num_computed_tokens,
        b.block_table,
        new_tokens(b),
    ) == (0, [], 18)
    scheduler.remove(first)
    assert step(scheduler) == [("b", 0, 18)]
    assert step(scheduler) == [("b", 18, 19)]


def test_the_latest_to_join_gives_up_its_own_where_it_is_short_itself() -> None:
    first, second = group("a", 1), group("b", BLOCK_SIZE)
    scheduler, pool = make(first, second, blocks=3)
    (b,) = second.sequences
    step(scheduler)
    pool.extend([], BLOCK_SIZE)
    assert step(scheduler) == [("a", 1, 2)]
    assert b.block_table == []


def test_new_blocks_are_told_once() -> None:
    scheduler, _ = make(group("a", BLOCK_SIZE))
    step(scheduler)
    assert scheduler.new_blocks == [1]
    step(scheduler)
    assert scheduler.new_blocks == [2]
    step(scheduler)
    assert scheduler.new_blocks == []


def test_removing_frees_blocks_and_rows() -> None:
    running, waiting = group("a", 40), group("b", 40)
    scheduler, pool = make(running, waiting, rows=1)
    step(scheduler)
    assert pool.free == 97
    scheduler.remove(waiting)
    scheduler.remove(running)
    assert pool.free == 100
    assert not scheduler.has_work


def test_what_is_shared_is_copied_before_it_is_written() -> None:
    beams = group("a", 3 * BLOCK_SIZE // 2)
    scheduler, pool = make(beams, blocks=10)
    step(scheduler)
    (first,) = beams.sequences
    other = first.fork(pool.share(first.block_table))
    beams.sequences = [first, other]
    assert step(scheduler) == [("a", 24, 25), ("a", 24, 25)]
    assert (first.block_table, other.block_table, scheduler.copies) == ([1, 3], [1, 2], {3: 2})
    step(scheduler)
    assert scheduler.copies == {}
    pool.release(first.block_table)
    beams.sequences = [other]
    assert pool.free == 8
    scheduler.remove(beams)
    assert pool.free == 10


def test_drafts_leave_a_block_for_each_that_runs() -> None:
    first, second = group("a", BLOCK_SIZE - 1), group("b", 1)
    scheduler, _ = make(first, second, blocks=5)
    (a,), (b,) = first.sequences, second.sequences
    step(scheduler)
    assert scheduler.reserve(a, 1)
    assert a.block_table == [1, 3]
    assert not scheduler.reserve(b, BLOCK_SIZE)
    assert b.block_table == [2]
