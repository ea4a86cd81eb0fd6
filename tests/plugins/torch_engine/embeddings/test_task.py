"""The choice of task: models that generate, and models that make vectors."""

from pathlib import Path
from typing import Any

import pytest

from lmi_plugins.torch_engine.embeddings.task import choose_task
from lmi_plugins.torch_engine.messages.embeddings import EmbeddingOptions, Task
from lmi_plugins.torch_engine.messages.requests import EngineOptions
from tests.plugins.torch_engine.embeddings.encoders import save_recipe, write


def task(folder: Path, asked: Task | None = None) -> Task:
    return choose_task(EngineOptions(str(folder), embedding=EmbeddingOptions(asked)))


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({"model_type": "llama", "architectures": ["LlamaForCausalLM"]}, "generate"),
        ({"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"]}, "generate"),
        ({"model_type": "llama"}, "generate"),
        ({"model_type": "bert", "architectures": ["BertModel"]}, "embed"),
        ({"model_type": "bert", "architectures": ["BertForMaskedLM"]}, "embed"),
        ({"model_type": "mistral", "architectures": ["MistralModel"]}, "embed"),
        ({"model_type": "t5", "architectures": ["T5EncoderModel"]}, "embed"),
        ({"model_type": "t5", "architectures": ["T5ForConditionalGeneration"]}, "generate"),
        (
            {"model_type": "llama", "architectures": ["OwnModel"], "auto_map": {"AutoModelForCausalLM": "own.Own"}},
            "generate",
        ),
    ],
)
def test_by_the_architecture(config: dict[str, Any], expected: Task, tmp_path: Path) -> None:
    write(tmp_path / "config.json", config)
    assert task(tmp_path) == expected
    assert task(tmp_path, "generate") == "generate"
    assert task(tmp_path, "embed") == "embed"


def test_by_the_files_of_sentence_transformers(tmp_path: Path) -> None:
    write(tmp_path / "config.json", {"model_type": "qwen3", "architectures": ["Qwen3ForCausalLM"]})
    assert task(tmp_path) == "generate"
    save_recipe(tmp_path, {"pooling_mode_lasttoken": True})
    assert task(tmp_path) == "embed"


def test_without_a_configuration(tmp_path: Path) -> None:
    assert task(tmp_path) == "generate", "loading it says what is wrong"
