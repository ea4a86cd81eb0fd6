"""The files of sentence-transformers."""

from pathlib import Path
from typing import Any

import pytest

from lmi_core.errors import ConfigurationError
from lmi_core.inspection.layers import MODULES
from lmi_plugins.torch_engine.embeddings.recipe import Recipe, has_recipe, read_recipe
from lmi_plugins.torch_engine.messages.embeddings import EmbeddingOptions
from tests.plugins.torch_engine.embeddings.encoders import save_recipe, write


def read(folder: Path, **options: Any) -> Recipe:
    return read_recipe(folder, "cls", EmbeddingOptions(**options))


def test_none(tmp_path: Path) -> None:
    assert not has_recipe(tmp_path)
    assert read(tmp_path) == Recipe(("cls",), normalize=True)
    assert read(tmp_path, pooling="mean", normalize=False) == Recipe(("mean",), normalize=False)


@pytest.mark.parametrize(
    ("pooling", "modes"),
    [
        ({"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": False, "include_prompt": True}, ("cls",)),
        ({"pooling_mode_lasttoken": True}, ("lasttoken",)),
        ({"pooling_mode_mean_sqrt_len_tokens": True, "pooling_mode_max_tokens": True}, ("max", "mean_sqrt_len")),
        ({"pooling_mode": "weightedmean"}, ("weightedmean",)),
        ({"pooling_mode": ["mean", "cls"]}, ("cls", "mean")),
        ({}, ("mean",)),
    ],
)
def test_modes(pooling: dict[str, Any], modes: tuple[str, ...], tmp_path: Path) -> None:
    save_recipe(tmp_path, pooling)
    assert has_recipe(tmp_path)
    assert read(tmp_path).modes == modes
    assert read(tmp_path, pooling="max").modes == ("max",)


def test_layers_and_lengths(tmp_path: Path) -> None:
    save_recipe(tmp_path, {"pooling_mode_mean_tokens": True}, dense=8, normalized=False, length=20)
    write(tmp_path / "sentence_bert_config.json", {"max_seq_length": 20, "do_lower_case": True})
    prompts = {"prompts": {"query": "query: "}, "default_prompt_name": "query"}
    write(tmp_path / "config_sentence_transformers.json", prompts)
    found = Recipe(("mean",), False, (tmp_path / "2_Dense",), 20, True, "query: ", {"query": "query: "})
    assert read(tmp_path) == found
    assert read(tmp_path, normalize=True).normalize


def test_newer_names_of_modules(tmp_path: Path) -> None:
    package = "sentence_transformers.sentence_transformer.modules"
    kinds = [("", "transformer.Transformer"), ("1_Pooling", "pooling.Pooling"), ("2_Normalize", "normalize.Normalize")]
    write(tmp_path / MODULES, [{"path": path, "type": f"{package}.{kind}"} for path, kind in kinds])
    write(tmp_path / "1_Pooling" / "config.json", {"pooling_mode": "cls"})
    assert read(tmp_path) == Recipe(("cls",), normalize=True)


@pytest.mark.parametrize(
    ("modules", "message"),
    [
        (
            [{"path": "", "type": "m.Pooling"}, {"path": "2_CNN", "type": "m.CNN"}],
            r"its module CNN \(2_CNN\) is not supported",
        ),
        (
            [{"path": "0_T", "type": "m.Transformer"}, {"path": "", "type": "m.Pooling"}],
            r"its module Transformer \(0_T\)",
        ),
        ({}, "must be a JSON array of objects"),
    ],
)
def test_what_cannot_be_followed(modules: Any, message: str, tmp_path: Path) -> None:
    write(tmp_path / MODULES, modules)
    with pytest.raises(ConfigurationError, match=message):
        read(tmp_path)


def test_unknown_mode(tmp_path: Path) -> None:
    save_recipe(tmp_path, {"pooling_mode": "median"})
    with pytest.raises(ConfigurationError, match="the pooling median is unknown; known: cls, max, mean"):
        read(tmp_path)


def test_file_that_is_not_json(tmp_path: Path) -> None:
    (tmp_path / MODULES).write_text("[", encoding="utf-8")
    with pytest.raises(ConfigurationError, match="is not valid JSON"):
        read(tmp_path)
