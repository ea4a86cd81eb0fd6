import pytest

from lmi_plugins.backends.parallel_degrees import MAX, parallel_degrees


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
    found = parallel_degrees(tensor, pipeline, devices)
    assert (found.tensor, found.pipeline) == expected
    assert (found.warning is None) == (expected == (tensor if isinstance(tensor, int) else None, pipeline))


def test_the_warning_names_what_was_asked_for() -> None:
    assert parallel_degrees(2, 4, 2).warning == (
        "option.tensor_parallel_degree=2 and option.pipeline_parallel_degree=4 asks for 8 devices, but this host "
        "has 2: the model runs on 2"
    )
