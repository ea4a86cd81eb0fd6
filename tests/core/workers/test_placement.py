"""The devices of replicas."""

import pytest

from lmi_core.errors import ConfigurationError
from lmi_core.workers.placement import placement
from lmi_core.workers.replicas import ONE, ReplicaCount


@pytest.mark.parametrize(
    ("devices", "gpus", "degree", "groups"),
    [
        ([], 0, 1, [["cpu"]]),
        ([], 0, 4, [["cpu"]]),
        (["cpu"], 4, 1, [["cpu"]]),
        ([], 4, 1, [["0"], ["1"], ["2"], ["3"]]),
        ([], 4, 2, [["0", "1"], ["2", "3"]]),
        ([], 4, 3, [["0", "1", "2"]]),
        ([], 2, 4, [["0", "1"]]),
        (["1", "3"], 4, 1, [["1"], ["3"]]),
    ],
)
def test_as_many_groups_as_the_devices_allow(
    devices: list[str], gpus: int, degree: int, groups: list[list[str]]
) -> None:
    found = placement(ONE, devices, gpus, degree)
    assert [list(group) for group in found.groups] == groups
    assert found.replicas == (len(groups), len(groups))
    assert found.total(ReplicaCount(2, 3)) == (2 * len(groups), 3 * len(groups))
    assert [found.devices(number) for number in range(2 * len(groups))] == groups * 2


@pytest.mark.parametrize(
    ("count", "gpus", "degree", "words"),
    [
        (ONE, 0, 1, "1 engine"),
        (ReplicaCount(3, 3), 0, 1, "3 engines"),
        (ReplicaCount(1, 4), 0, 1, "1 to 4 engines"),
        (ONE, 4, 2, "2 engines, on GPU 0, 1; 2, 3"),
        (ONE, 5, 2, "2 engines, on GPU 0, 1; 2, 3; GPU 4 stays idle: an engine takes 2 GPUs"),
    ],
)
def test_in_words(count: ReplicaCount, gpus: int, degree: int, words: str) -> None:
    assert str(placement(count, [], gpus, degree)) == words


@pytest.mark.parametrize(
    ("count", "gpus", "degree", "parts"),
    [
        (ONE, 4, 1, [([["0"], ["2"]], 2, 2), ([["1"], ["3"]], 2, 2)]),
        (ONE, 4, 2, [([["0", "1"]], 1, 1), ([["2", "3"]], 1, 1)]),
        (ReplicaCount(1, 2), 3, 1, [([["0"], ["2"]], 2, 4), ([["1"]], 1, 2)]),
        (ReplicaCount(0, 1), 2, 1, [([["0"]], 1, 1), ([["1"]], 1, 1)]),
        (ReplicaCount(3, 5), 0, 1, [([["cpu"]], 2, 3), ([["cpu"]], 1, 2)]),
    ],
)
def test_servers_divide_the_replicas(
    count: ReplicaCount, gpus: int, degree: int, parts: list[tuple[list[list[str]], int, int]]
) -> None:
    whole = placement(count, [], gpus, degree)
    assert whole.part(0, 1) == whole
    for number, (groups, least, most) in enumerate(parts):
        part = whole.part(number, len(parts))
        assert ([list(group) for group in part.groups], *part.replicas) == (groups, least, most)


def test_more_servers_than_they_can_divide() -> None:
    with pytest.raises(ConfigurationError, match=r"^--servers 3 needs .* engines, and there are 2: set minWorkers\. "):
        placement(ReplicaCount(2, 4), [], 0, 1).part(0, 3)
    with pytest.raises(
        ConfigurationError, match=r"^--servers 3 needs .* GPUs, and there are 2: .* an engine takes 2 GPUs"
    ):
        placement(ReplicaCount(2, 4), [], 4, 2).part(0, 3)
