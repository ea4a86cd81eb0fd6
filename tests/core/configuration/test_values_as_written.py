"""Values in the letters, quotes and company in which people write them."""

from typing import Annotated, Literal

import pytest
from pydantic import Field, PositiveInt

from lmi_core.configuration.configuration import display_value
from lmi_core.configuration.properties import JsonObject, ModelProperties, Names, RequestProperties, ServerProperties
from tests.core.model_directories import Directory


class BackendProperties(ModelProperties):
    dtype: Literal["auto", "fp16", "bf16"] = Field("auto", description="Data type.")
    tensor_parallel_degree: PositiveInt | Literal["max"] | None = Field(None, description="Devices.")
    speculative_config: JsonObject | None = Field(None, description="The draft model.")
    hf_token: Annotated[Literal["a", "b"] | None, Names()] = Field(None, description="A secret.")


def errors_of(directory: Directory, line: str) -> list[str]:
    configuration = directory.read(line)
    for properties_type in (ServerProperties, RequestProperties, BackendProperties):
        configuration.load(properties_type)
    return configuration.errors


@pytest.mark.parametrize(
    ("line", "field", "value"),
    [
        ("option.dtype=FP16", "dtype", "fp16"),
        ("option.dtype=Bf16", "dtype", "bf16"),
        ("option.tensor_parallel_degree=MAX", "tensor_parallel_degree", "max"),
        ("option.task=Text-Generation", "task", "Text-Generation".lower()),
    ],
)
def test_names_in_other_letters(directory: Directory, line: str, field: str, value: str) -> None:
    configuration = directory.read(line + "\noption.model_id=Org/Name")
    properties = configuration.load(BackendProperties)
    assert (getattr(properties, field), properties.model_id) == (value, "Org/Name")
    assert configuration.errors == []


def test_selections_in_other_letters(directory: Directory) -> None:
    options = directory.read("option.rolling_batch=AUTO\noption.enable_streaming=HuggingFace").load(RequestProperties)
    assert (options.rolling_batch, options.enable_streaming) == ("auto", True)
    assert directory.read("option.rolling_batch=Disable").load(RequestProperties).dynamic_batching
    assert directory.read("option.rolling_batch=Mine").load(RequestProperties).rolling_batch == "Mine"


@pytest.mark.parametrize(
    ("line", "error"),
    [
        ("option.dtype=FP8", "option.dtype must be one of auto, fp16, bf16. Given: FP8"),
        (
            'option.dtype="fp16"',
            'option.dtype must be one of auto, fp16, bf16. Given: "fp16". Quotes are not removed: they are '
            "part of the value",
        ),
        (
            "option.dtype=fp16   # saves memory",
            "option.dtype must be one of auto, fp16, bf16. Given: fp16 # saves memory. Comments must be on "
            "separate lines: this one is part of the value",
        ),
        (
            'option.speculative_config={"Model": "Org/Name", "eager": True}',
            'option.speculative_config must be a JSON object. Given: {"Model": "Org/Name", "eager": True}',
        ),
        ("option.hf_token=hf_123", "option.hf_token must be one of a, b. Given: ***"),
    ],
)
def test_errors_of_values(directory: Directory, line: str, error: str) -> None:
    assert errors_of(directory, line) == [f"serving.properties:1: {error}"]


def test_secrets_are_not_shown(directory: Directory) -> None:
    configuration = directory.read("option.hf_token=hf_123")
    configuration.load(ModelProperties)
    configuration.explain_unread({"option.hf_token": "it is for vLLM"})
    assert configuration.warnings == ["serving.properties:1: option.hf_token has no effect: it is for vLLM. Given: ***"]
    shown = {key: display_value(key, "x  y") for key in ("option.max_tokens", "option.api_key", "keystore_password")}
    assert list(shown.values()) == ["x y", "***", "***"]


@pytest.mark.parametrize(
    ("key", "hint"),
    [
        ("option.max_seq_length", ""),
        ("option.tensor_paralel_degree", "; did you mean option.tensor_parallel_degree?"),
        ("option.pooling_of_tokens", ""),
    ],
)
def test_only_names_that_are_alike_are_suggested(directory: Directory, key: str, hint: str) -> None:
    configuration = directory.read(f"{key}=1")
    configuration.load(BackendProperties)
    configuration.explain_unread({})
    assert configuration.warnings == [f"serving.properties:1: {key} is not a known key and is ignored{hint}"]
