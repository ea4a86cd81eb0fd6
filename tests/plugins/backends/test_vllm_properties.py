"""LMI's options for models that embed, as vLLM's engine arguments."""

import json
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from lmi_core.backend import BackendSetup
from lmi_core.errors import ConfigurationError
from lmi_plugins.backends.vllm_properties import VllmProperties, embedding_arguments, vllm_arguments
from lmi_plugins.vllm_engine.arguments.load_formats import pickle_faults
from lmi_plugins.vllm_engine.arguments.parallel_degrees import ParallelDegrees


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, {}),
        ({"task": "text-generation"}, {"runner": "generate"}),
        ({"task": "text-embedding"}, {"runner": "pooling"}),
        ({"pooling": "last", "normalize": False}, {"pooler_config": {"pooling_type": "LAST", "use_activation": False}}),
        ({"matryoshka_dimensions": "any"}, {"hf_overrides": {"is_matryoshka": True}}),
        ({"matryoshka_dimensions": "64, 32"}, {"hf_overrides": {"matryoshka_dimensions": [32, 64]}}),
    ],
)
def test_arguments_of_models_that_embed(tmp_path: Path, options: dict[str, Any], expected: dict[str, Any]) -> None:
    (tmp_path / "config.json").write_text("{}")
    given = BackendSetup(tmp_path, VllmProperties(**options), {}, 0)
    arguments = vllm_arguments(given, {}, ParallelDegrees(1, 1))
    found = {name: arguments[name] for name in ("runner", "pooler_config", "hf_overrides") if name in arguments}
    assert {name: json.loads(each) if each.startswith("{") else each for name, each in found.items()} == expected


def test_embedding_arguments_that_are_passed_through_come_first() -> None:
    properties = VllmProperties(pooling="cls", normalize=True)
    passed = {"pooler_config": '{"use_activation": false, "max_embed_len": 9}'}
    found = json.loads(embedding_arguments(properties, passed)["pooler_config"])
    assert found == {"pooling_type": "CLS", "use_activation": False, "max_embed_len": 9}


def test_pooling_that_vllm_does_not_have() -> None:
    with pytest.raises(ConfigurationError, match="pooling=max: vLLM has cls, mean, lasttoken; the torch backend"):
        embedding_arguments(VllmProperties(pooling="max"), {})


@pytest.mark.parametrize("value", ["", "0", "a", "8,b", "[8, -1]"])
def test_wrong_sizes(value: str) -> None:
    with pytest.raises(ValidationError, match="must be numbers above 0 with commas between, or any"):
        VllmProperties(matryoshka_dimensions=value)


@pytest.mark.parametrize("value", ['{"a": True}', "[]", "x"])
def test_arguments_that_are_no_json_objects(value: str) -> None:
    with pytest.raises(ConfigurationError, match=r"^option\.pooler_config must be a JSON object.* Given: "):
        embedding_arguments(VllmProperties(normalize=True), {"pooler_config": value})
    with pytest.raises(ConfigurationError, match=r"^option\.speculative_config must be a JSON object.* Given: "):
        pickle_faults({"model": "org/name", "speculative_config": value}, allowed=False)
