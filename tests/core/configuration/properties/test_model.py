import pytest

from lmi_core.configuration.properties import (
    ModelProperties,
)
from tests.core.model_directories import Directory


@pytest.mark.parametrize(
    ("task", "message"),
    [
        ("text-generation", None),
        ("text_embedding", "option.task must be text-generation, the only task that this server supports"),
    ],
)
def test_tasks(directory: Directory, task: str, message: str | None) -> None:
    configuration = directory.read(f"option.task={task}")
    configuration.load(ModelProperties)
    assert configuration.errors == ([] if message is None else [f"serving.properties:1: {message}. Given: {task}"])
