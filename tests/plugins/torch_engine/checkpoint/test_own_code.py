"""Python code that a model's configuration names, run only where that is allowed; and links to weights."""

import json
import shutil
import sys
from pathlib import Path

import pytest
from transformers import dynamic_module_utils

from lmi_core.errors import ConfigurationError
from lmi_core.texts.huggingface_tokenizer import HuggingFaceTokenizer
from lmi_plugins.torch_engine.messages.requests import EngineOptions
from lmi_plugins.torch_engine.model.loading import load_model
from tests.plugins.torch_engine.conftest import ModelDirectory

ADVICE = "contains Python code, which is not run: set option.trust_remote_code=true if you trust"
CODE = """\
from pathlib import Path
Path({ran!r}).touch()
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

class Config(LlamaConfig):
    model_type = "own"

class Model(LlamaForCausalLM):
    config_class = Config

class Own(PreTrainedTokenizerFast):
    pass
"""
MODEL = {"AutoConfig": "own.Config", "AutoModelForCausalLM": "own.Model"}
TOKENIZER = {"AutoTokenizer": [None, "own.Own"]}


@pytest.fixture
def folder(model_directory: ModelDirectory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder of a model with code in it, which leaves a sign beside the folder when it runs."""
    monkeypatch.setattr(dynamic_module_utils, "HF_MODULES_CACHE", str(tmp_path / "modules"))
    monkeypatch.setattr(sys, "path", [*sys.path])  # to which transformers adds that
    copy = Path(shutil.copytree(model_directory("llama"), tmp_path / "llama"))
    (copy / "own.py").write_text(CODE.format(ran=str(tmp_path / "ran")))
    return copy


def change(file: Path, **members: object) -> None:
    file.write_text(json.dumps(json.loads(file.read_text()) | members))


@pytest.mark.parametrize("known", [True, False])
def test_code_of_a_model_is_not_run_unless_it_is_trusted(folder: Path, known: bool) -> None:
    ran = folder.parent / "ran"
    change(folder / "config.json", auto_map=MODEL, **({} if known else {"model_type": "own"}))
    if known:
        assert load_model(EngineOptions(str(folder))).num_parameters() > 0  # by transformers' own class
    else:
        with pytest.raises(ConfigurationError, match=ADVICE):
            load_model(EngineOptions(str(folder)))
    assert not ran.exists()
    load_model(EngineOptions(str(folder), trust_remote_code=True))
    assert ran.exists()


def test_code_of_a_tokenizer_is_not_run_unless_it_is_trusted(folder: Path) -> None:
    ran = folder.parent / "ran"
    change(folder / "tokenizer_config.json", auto_map=TOKENIZER, tokenizer_class="Own")
    with pytest.raises(ConfigurationError, match=ADVICE):
        HuggingFaceTokenizer.load(str(folder))
    assert not ran.exists()
    HuggingFaceTokenizer.load(str(folder), trust_remote_code=True)
    assert ran.exists()


def test_weights_may_be_links_as_in_the_cache_of_the_hub(folder: Path) -> None:
    weights = folder.parent / "blob"
    (folder / "model.safetensors").rename(weights)
    (folder / "model.safetensors").symlink_to(weights)
    assert load_model(EngineOptions(str(folder))).num_parameters() > 0
