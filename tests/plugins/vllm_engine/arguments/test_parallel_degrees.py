import pytest

from lmi_plugins.vllm_engine.arguments.parallel_degrees import MAX, parallel_degrees


@pytest.mark.parametrize(
    ("tensor", "pipeline", "devices", "expected"),
    [
        (None, 1, 8, (None, 1)),
        (MAX, 1, 1, (None, 1)),
        (4, 1, 8, (4, 1)),
        (4, 2, 8, (4, 2)),
        (8, 1, None, (8, 1)),
        (8, 1, 4, (4, 1)),
        (4, 1, 3, (2, 1)),
        (8, 1, 1, (1, 1)),
        (2, 2, 2, (1, 2)),
        (2, 4, 2, (1, 2)),
        (MAX, 4, 2, (None, 2)),
    ],
)
def test_what_the_devices_are_enough_for(
    tensor: int | str | None, pipeline: int, devices: int | None, expected: tuple[int | None, int]
) -> None:
    found = parallel_degrees(tensor, pipeline, devices, "this host has too few")
    assert (found.tensor, found.pipeline) == expected
    assert (not found.substitutions) == (expected == (tensor if isinstance(tensor, int) else None, pipeline))


def test_each_reduced_degree_is_told() -> None:
    assert [str(each) for each in parallel_degrees(2, 4, 2, "this host has 2 GPUs").substitutions] == [
        "option.tensor_parallel_degree=2: this host has 2 GPUs; the degree is 1, and the model runs slower",
        "option.pipeline_parallel_degree=4: this host has 2 GPUs; the degree is 2, and the model runs slower",
    ]
