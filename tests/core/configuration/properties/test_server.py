import pytest

from lmi_core.configuration.properties import (
    ServerProperties,
)
from tests.core.model_directories import Directory, error_of


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (
            "engine=Pyton",
            "engine must be one of Python, MPI, DeepSpeed, FasterTransformer, Rust, OnnxRuntime. Given: Pyton",
        ),
        (
            "engine=XGBoost",
            "engine must be one of Python, MPI, DeepSpeed, FasterTransformer, Rust, OnnxRuntime: "
            "DJLServing's other engines are for "
            "kinds of models that this server does not support. Given: XGBoost",
        ),
        ("job_queue_size=0", "job_queue_size must be an integer greater than 0. Given: 0"),
        ("max_batch_delay=-1", "max_batch_delay must be an integer no less than 0. Given: -1"),
        (
            "throttle_error_http_code=200",
            "throttle_error_http_code must be an integer no less than 400 and no more than 599. Given: 200",
        ),
    ],
)
def test_invalid_server_value(directory: Directory, line: str, message: str) -> None:
    assert error_of(directory.read(line), ServerProperties) == f"serving.properties:1: {message}"


@pytest.mark.parametrize(
    ("gpus", "expected"),
    [(0, (0, 4)), (2, (3, 3))],
)
def test_workers_of_each_kind_of_device(directory: Directory, gpus: int, expected: tuple[int, int]) -> None:
    text = "minWorkers=0\ncpu.maxWorkers=4\ngpu.minWorkers=3\ngpu.maxWorkers=2"
    assert directory.read(text).load(ServerProperties).workers(gpus) == expected
