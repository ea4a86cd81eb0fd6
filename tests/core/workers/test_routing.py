"""The replica that a request goes to."""

import random
from collections import Counter

import pytest

from lmi_core.workers import routing
from lmi_core.workers.isolation import Work
from lmi_core.workers.routing import BLOCK, COMPARED, Router
from tests.core.workers.numbers import Numbers
from tests.virtual_time import in_virtual_time


def prompt(seed: int, blocks: int = 4) -> list[int]:
    return random.Random(seed).choices(range(50_000), k=blocks * BLOCK)


async def enter(router: Router[Numbers], replicas: list[Numbers], tokens: list[int], kind: str = "") -> Numbers:
    work = Work.generation(tokens, 800, 1, kind)
    replica = router.choose(replicas, work)
    (await replica.isolation.enter(work)).record_start()
    return replica


@in_virtual_time
async def test_turns_of_a_chat_and_system_prompts_stay_together() -> None:
    router, replicas = Router[Numbers](), [Numbers(i, set()) for i in range(3)]
    first, second = await enter(router, replicas, prompt(1)), await enter(router, replicas, prompt(2))
    assert first is not second
    assert await enter(router, replicas, prompt(1) + prompt(3, 1)) is first
    assert await enter(router, replicas, [*prompt(2)[: 3 * BLOCK], 1, 2, 3]) is second
    assert await enter(router, replicas, prompt(1), kind="adapter") is replicas[2]  # with another adapter
    assert await enter(router, replicas, prompt(1)[1:]) is not first


@in_virtual_time
async def test_a_replica_that_accepts_no_requests_gets_none_for_its_prefixes() -> None:
    router, replicas = Router[Numbers](), [Numbers(i, set()) for i in range(3)]
    first = await enter(router, replicas, prompt(1))
    others = [each for each in replicas if each is not first]
    for each in others:
        each.isolation.tokens = 10_000
    assert await enter(router, others, prompt(1)) is others[0]
    assert await enter(router, replicas, prompt(1)) is first


@pytest.mark.parametrize(("shared", "held"), [(63, 0), (100, 64), (600, 512), (1100, 1024), (1300, 1280)])
@in_virtual_time
async def test_prefixes_are_compared_in_blocks_that_grow(shared: int, held: int) -> None:
    long, tail = prompt(1, 20), prompt(2)

    def chosen(tokens: int) -> int:
        """Return the choice for a prompt of which the first replica, with this much to do, has the beginning."""
        router, replicas = Router[Numbers](), [Numbers(i, set()) for i in range(2)]
        router.choose(replicas, Work(prompt=long))
        replicas[0].isolation.tokens, replicas[1].isolation.tokens = tokens, 1
        return replicas.index(router.choose(replicas, Work(prompt=[*long[:shared], *tail])))

    assert [chosen(held), chosen(held + 1)] == [0, 0 if held == 0 else 1]


@in_virtual_time
async def test_a_replica_with_more_to_do_than_the_prefix_saves_gets_no_more() -> None:
    router, replicas = Router[Numbers](), [Numbers(i, set()) for i in range(2)]
    chosen = [await enter(router, replicas, prompt(1)) for _ in range(6)]
    assert [replicas.index(each) for each in chosen] == [0, 0, 0, 1, 1, 1]


@in_virtual_time
async def test_a_full_replica_is_chosen_only_if_all_are_full() -> None:
    router, replicas = Router[Numbers](max_sequences=2), [Numbers(i, set()) for i in range(2)]
    replicas[1].isolation.tokens = 1000
    chosen = [await enter(router, replicas, prompt(1)) for _ in range(4)]
    assert [replicas.index(each) for each in chosen] == [0, 0, 1, 1]
    assert await enter(router, replicas, prompt(1)) is replicas[0]


@in_virtual_time
async def test_many_replicas_get_the_same_load() -> None:
    """Although only some of them are compared for each request."""
    router, replicas = Router[Numbers](), [Numbers(i, set()) for i in range(5 * COMPARED)]
    chosen = [await enter(router, replicas, prompt(seed, 1)) for seed in range(2 * len(replicas))]
    assert {*Counter(chosen).values()} == {2}


@in_virtual_time
async def test_the_longest_prefixes_are_forgotten_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(routing, "MAX_BLOCKS", 8)
    router, replicas = Router[Numbers](), [Numbers(i, set()) for i in range(2)]
    for tokens in (prompt(1), prompt(2), prompt(3, 2)):
        router.choose(replicas, Work(prompt=tokens))
    replicas[0].isolation.tokens, replicas[1].isolation.tokens = 2 * BLOCK, 1
    assert router.choose(replicas, Work(prompt=prompt(1))) is replicas[0]


@in_virtual_time
async def test_prefixes_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    router, replicas = Router[Numbers](), [Numbers(i, set()) for i in range(2)]
    replicas[0].isolation.tokens = 10
    assert router.choose(replicas, Work(prompt=prompt(1))) is replicas[1]
    replicas[1].isolation.tokens = 100
    assert router.choose(replicas, Work(prompt=prompt(1))) is replicas[1]
    router.forget(replicas[1])
    assert router.choose(replicas, Work(prompt=prompt(1))) is replicas[0]
    monkeypatch.setattr(routing, "MAX_BLOCKS", 8)
    for seed in range(2, 6):
        router.choose(replicas, Work(prompt=prompt(seed)))
    replicas[0].isolation.tokens = 150
    assert router.choose(replicas, Work(prompt=prompt(1))) is replicas[1]
    assert len(router._holders) <= 8
