"""Warnings of a configuration about keys without effect."""

from collections.abc import Mapping
from typing import Annotated

import pytest

from lmi_core.configuration.configuration import EffectiveValue
from lmi_core.configuration.properties import (
    ModelProperties,
    NoEffect,
    Properties,
    RequestProperties,
    ServerProperties,
    keys_of,
)
from tests.core.model_directories import Directory, error_of, load_all, warnings_of


class Explained(Properties):
    wheels: Annotated[int, NoEffect("it has none")] = 4
    brakes: Annotated[str | None, NoEffect("they are worn", except_for=("hand",))] = None


@pytest.mark.parametrize(
    ("text", "environment", "warnings"),
    [
        ("", {}, []),
        ("option.wheels=4", {}, []),
        ("option.brakes=hand", {}, []),
        ("option.brakes=foot", {}, ["serving.properties:1: option.brakes has no effect: they are worn. Given: foot"]),
        ("option.wheels=3", {}, ["serving.properties:1: option.wheels has no effect: it has none. Given: 3"]),
        ("", {"OPTION_WHEELS": "3"}, ["environment OPTION_WHEELS: option.wheels has no effect: it has none. Given: 3"]),
    ],
)
def test_what_has_no_effect_is_explained(
    directory: Directory, text: str, environment: Mapping[str, str], warnings: list[str]
) -> None:
    configuration = directory.read(text, environment)
    configuration.load(Explained)
    assert configuration.warnings == warnings
    assert keys_of(Explained)[0].help == "Accepted from LMI, without effect: it has none."


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("engine=MPI", "engine"),
        ("option.mpi_mode=true", "option.mpi_mode"),
        ("option.parallel_loading=true", "option.parallel_loading"),
    ],
)
def test_keys_of_lmi_that_have_no_effect(directory: Directory, text: str, key: str) -> None:
    configuration = directory.read(text)
    load_all(configuration, ServerProperties, RequestProperties)
    (warning,) = configuration.warnings
    assert warning.startswith(f"serving.properties:1: {key} has no effect: ")


@pytest.mark.parametrize(
    ("line", "hint"),
    [
        ("option.max_rolling_batchsize=1", "; did you mean option.max_rolling_batch_size?"),
        ("option.Model_ID=gpt2", "; did you mean option.model_id?"),
        ("HF_MODEL_ID=gpt2", "; did you mean option.model_id?"),
        ("option.max_model_length=1", "; did you mean option.max_model_len?"),
        ("option.nonsense=1", ""),
        ("SERVING_BATCH=1", "; did you mean batch_size?"),
    ],
)
def test_an_unknown_key_is_a_warning(directory: Directory, line: str, hint: str) -> None:
    configuration = directory.read(f"\n{line}")
    configuration.pass_through(["max_model_len"])
    warnings = warnings_of(configuration, ServerProperties, RequestProperties, ModelProperties)
    assert warnings == [f"serving.properties:2: {line.partition('=')[0]} is not a known key and is ignored{hint}"]


@pytest.mark.parametrize(
    ("line", "key", "value"),
    [
        ("model_id=gpt2", "option.model_id", "gpt2"),
        ("option.job_queue_size=7", "job_queue_size", "7"),
        ("option.batch_size=4", "batch_size", "4"),
        ("predict_timeout=9", "option.predict_timeout", "9"),
    ],
)
def test_a_key_in_the_wrong_namespace_is_read_with_a_warning(
    directory: Directory, line: str, key: str, value: str
) -> None:
    configuration = directory.read(line)
    warnings = warnings_of(configuration, ServerProperties, RequestProperties, ModelProperties)
    assert warnings == [f"serving.properties:1: {line.partition('=')[0]} is read as {key}, the name of that key"]
    assert EffectiveValue(key, value, "serving.properties:1") in configuration.effective()


def test_a_key_in_the_wrong_namespace_gives_way_to_the_right_one(directory: Directory) -> None:
    configuration = directory.read("model_id=wrong\noption.model_id=right")
    warnings = warnings_of(configuration, ModelProperties)
    assert configuration.load(ModelProperties).model_id == "right"
    assert warnings == [
        "serving.properties:1: model_id is not a known key and is ignored; did you mean option.model_id?"
    ]


def test_a_wrong_value_in_the_wrong_namespace_is_an_error(directory: Directory) -> None:
    message = error_of(directory.read("option.job_queue_size=many"), ServerProperties)
    assert message == "serving.properties:1: job_queue_size must be an integer greater than 0. Given: many"


def test_a_known_key_that_means_nothing_is_explained(directory: Directory) -> None:
    configuration = directory.read("option.n_positions=512", {"OPTION_UNROLL": "4"})
    configuration.explain_unread({"option.n_positions": "it is for a compiler", "option.unroll": "so is this"})
    assert configuration.warnings == [
        "serving.properties:1: option.n_positions has no effect: it is for a compiler. Given: 512",
        "environment OPTION_UNROLL: option.unroll has no effect: so is this. Given: 4",
    ]


def test_unknown_variable(directory: Directory) -> None:
    configuration = directory.read(None, {"OPTION_TRUST_REMOTE": "true", "OPTION_PLEASE": "1", "PATH": "/bin"})
    assert warnings_of(configuration, ModelProperties) == [
        "environment OPTION_TRUST_REMOTE is not a known variable and is ignored; did you mean "
        "OPTION_TRUST_REMOTE_CODE?",
        "environment OPTION_PLEASE is not a known variable and is ignored",
    ]


def test_unknown_server_variable(directory: Directory) -> None:
    configuration = directory.read(None, {"SERVING_FAIL_FAST": "true", "SERVING_BATCHSIZE": "2", "PATH": "/bin"})
    assert warnings_of(configuration, ServerProperties) == [
        "environment SERVING_FAIL_FAST is not a known variable and is ignored",
        "environment SERVING_BATCHSIZE is not a known variable and is ignored; did you mean SERVING_BATCH_SIZE?",
    ]
