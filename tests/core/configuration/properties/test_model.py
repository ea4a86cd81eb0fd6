import pytest

from lmi_core.configuration.properties import (
    ModelProperties,
)
from tests.core.model_directories import Directory


@pytest.mark.parametrize(
    ("task", "message"),
    [
        ("text-generation", None),
        ("text_embedding", None),
        ("Image-Text-to-Text", None),
        (
            "fill-mask",
            "option.task must be text-generation, text-embedding or reranking, the tasks that this server supports",
        ),
    ],
)
def test_tasks(directory: Directory, task: str, message: str | None) -> None:
    configuration = directory.read(f"option.task={task}")
    configuration.load(ModelProperties)
    assert configuration.errors == ([] if message is None else [f"serving.properties:1: {message}. Given: {task}"])


@pytest.mark.parametrize(
    ("given", "task"),
    [
        ("", None),
        ("option.task=auto", None),
        ("option.task=text-generation", "generate"),
        ("option.task=Image-Text-to-Text", "generate"),
        ("option.task=text-embedding", "embed"),
        ("option.task=feature-extraction", "embed"),
        ("option.task=text-classification", "score"),
    ],
)
def test_what_the_model_is_to_do(directory: Directory, given: str, task: str | None) -> None:
    assert directory.read(given).load(ModelProperties).asked_task == task
