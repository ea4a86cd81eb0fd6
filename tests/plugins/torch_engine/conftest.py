from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from lmi_core.texts.huggingface_tokenizer import HuggingFaceTokenizer
from lmi_plugins.torch_engine.engine.engine import Engine
from tests.plugins.torch_engine.tiny_models import make_engine, reference_model, save_model, save_tokenizer

ModelDirectory = Callable[[str], Path]
ReferenceModel = Callable[[str], Any]  # transformers' models are not typed where they are called


@pytest.fixture(scope="session", autouse=True)
def one_thread() -> None:
    """Run PyTorch on one thread, on which tiny models are fastest."""
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def model_directory(tmp_path_factory: pytest.TempPathFactory) -> ModelDirectory:
    """Return a function that creates the directory of a tiny model on first use."""
    base = tmp_path_factory.mktemp("models")

    def make(architecture: str) -> Path:
        directory = base / architecture
        if not directory.exists():
            save_tokenizer(directory)
            save_model(directory, architecture)
        return directory

    return make


@pytest.fixture(scope="session")
def reference(model_directory: ModelDirectory) -> ReferenceModel:
    """Return a function that loads a tiny model in transformers."""
    models: dict[str, Any] = {}

    def load(architecture: str) -> Any:
        if architecture not in models:
            models[architecture] = reference_model(model_directory(architecture))
        return models[architecture]

    return load


@pytest.fixture(scope="session")
def tokenizer(model_directory: ModelDirectory) -> HuggingFaceTokenizer:
    return HuggingFaceTokenizer.load(str(model_directory("llama")))


@pytest.fixture(scope="session")
def engine(model_directory: ModelDirectory) -> Engine:
    """Return an engine of a Llama with default options, for tests that leave no state in it."""
    return make_engine(model_directory("llama"))
