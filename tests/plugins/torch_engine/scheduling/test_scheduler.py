from lmi_core.texts.token_stream import TokenStream
from lmi_core.tokenizer import Detokenizer
from lmi_plugins.torch_engine.scheduling.block_pool import BLOCK_SIZE, BlockPool
from lmi_plugins.torch_engine.scheduling.scheduler import Scheduler
from lmi_plugins.torch_engine.sequence import Sequence
from tests.plugins.torch_engine.tiny_models import request


class NoText(Detokenizer):
    def step(self, token_id: int) -> str:
        return ""


def sequence(name: str, length: int) -> Sequence:
    return Sequence.of(request(name, [5] * length, max_new_tokens=1000), 10_000, TokenStream(NoText()))


def step(scheduler: Scheduler) -> list[tuple[str, int, int]]:
    """What was scheduled; then every sequence that is computed to its end gets a token."""
    chunks = scheduler.schedule()
    for chunk in chunks:
        chunk.sequence.computed = chunk.end
        if chunk.samples:
            chunk.sequence.token_ids.append(5)
    return [(chunk.sequence.request_id, chunk.start, chunk.end) for chunk in chunks]


def make(*sequences: Sequence, blocks: int = 100, rows: int = 8, prefill: int = 64) -> tuple[Scheduler, BlockPool]:
    pool = BlockPool(blocks)
    scheduler = Scheduler(pool, rows, prefill)
    for each in sequences:
        scheduler.add(each)
    return scheduler, pool


def test_prompts_are_cut_to_the_budget_and_decoding_comes_first() -> None:
    scheduler, _ = make(sequence("a", 5), sequence("b", 30), sequence("c", 1), prefill=16)
    assert step(scheduler) == [("c", 0, 1), ("a", 0, 5), ("b", 0, 11)]
    assert step(scheduler) == [("a", 5, 6), ("c", 1, 2), ("b", 11, 27)]
    assert step(scheduler) == [("a", 6, 7), ("c", 2, 3), ("b", 27, 30)]
    assert step(scheduler) == [("a", 7, 8), ("b", 30, 31), ("c", 3, 4)]


def test_a_chunk_of_one_token_comes_with_those_that_decode() -> None:
    scheduler, _ = make(sequence("a", 15), sequence("b", 9), prefill=16)
    assert step(scheduler) == [("b", 0, 1), ("a", 0, 15)]


def test_waiting_ones_are_admitted_in_order_when_a_row_is_free() -> None:
    first, second, third = sequence("a", 3), sequence("b", 3), sequence("c", 3)
    scheduler, _ = make(first, second, third, rows=2)
    assert [name for name, *_ in step(scheduler)] == ["a", "b"]
    scheduler.remove(first)
    assert [name for name, *_ in step(scheduler)] == ["b", "c"]


def test_a_large_prompt_is_not_overtaken() -> None:
    scheduler, _ = make(sequence("a", BLOCK_SIZE), sequence("b", 4 * BLOCK_SIZE), sequence("c", 1), blocks=4)
    assert [name for name, *_ in step(scheduler)] == ["a"]
    assert [name for name, *_ in step(scheduler)] == ["a"]


def test_the_latest_to_join_gives_up_its_blocks() -> None:
    first, second = sequence("a", BLOCK_SIZE - 1), sequence("b", BLOCK_SIZE)
    scheduler, pool = make(first, second, blocks=3)
    assert step(scheduler) == [("a", 0, 15), ("b", 0, 16)]
    assert step(scheduler) == [("a", 15, 16), ("b", 16, 17)]
    assert (pool.free, first.pending, second.pending) == (0, 1, 1)
    assert step(scheduler) == [("a", 16, 17)]
    assert (second.computed, second.blocks, second.pending) == (0, [], 18)
    scheduler.remove(first)
    assert step(scheduler) == [("b", 0, 18)]
    assert step(scheduler) == [("b", 18, 19)]


def test_the_latest_to_join_gives_up_its_own_where_it_is_short_itself() -> None:
    first, second = sequence("a", 1), sequence("b", BLOCK_SIZE)
    scheduler, pool = make(first, second, blocks=3)
    step(scheduler)
    pool.extend([], BLOCK_SIZE)
    assert step(scheduler) == [("a", 1, 2)]
    assert second.blocks == []


def test_new_blocks_are_told_once() -> None:
    scheduler, _ = make(sequence("a", BLOCK_SIZE))
    step(scheduler)
    assert scheduler.new_blocks == [1]
    step(scheduler)
    assert scheduler.new_blocks == [2]
    step(scheduler)
    assert scheduler.new_blocks == []


def test_removing_frees_blocks_and_rows() -> None:
    running, waiting = sequence("a", 40), sequence("b", 40)
    scheduler, pool = make(running, waiting, rows=1)
    step(scheduler)
    assert pool.free == 97
    scheduler.remove(waiting)
    scheduler.remove(running)
    assert pool.free == 100
    assert not scheduler.has_work


def test_what_is_shared_is_copied_before_it_is_written() -> None:
    first = sequence("a", 3 * BLOCK_SIZE // 2)
    scheduler, pool = make(first, blocks=10)
    step(scheduler)
    other = first.fork(pool.share(first.blocks))
    scheduler.replace([first], [first, other])
    assert step(scheduler) == [("a", 24, 25), ("a", 24, 25)]
    assert (first.blocks, other.blocks, scheduler.copies) == ([1, 3], [1, 2], {3: 2})
    step(scheduler)
    assert scheduler.copies == {}
    scheduler.replace([first, other], [other])
    assert pool.free == 8
    scheduler.remove(other)
    assert pool.free == 10


def test_drafts_leave_a_block_for_each_that_runs() -> None:
    first, second = sequence("a", BLOCK_SIZE - 1), sequence("b", 1)
    scheduler, _ = make(first, second, blocks=5)
    step(scheduler)
    assert scheduler.reserve(first, 1)
    assert first.blocks == [1, 3]
    assert not scheduler.reserve(second, BLOCK_SIZE)
    assert second.blocks == [2]
