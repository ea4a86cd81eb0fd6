import re
from typing import Annotated, Literal

import pytest
from pydantic import Field, PositiveInt, ValidationError

from lmi_core.configuration.properties import (
    DeclaredKey,
    JsonObject,
    ModelProperties,
    Properties,
    RequestProperties,
    ServerProperties,
    environment_variable,
    keys_of,
)

CORE_TYPES: list[type[Properties]] = [ServerProperties, RequestProperties, ModelProperties]


class SampleProperties(Properties):
    degree: PositiveInt | Literal["max"] = Field(default="max", description="Devices.")
    ratio: Annotated[float, Field(gt=0, le=1)] = 0.9
    seed: Annotated[int, Field(ge=-1, lt=10)] = -1
    dtype: Literal["fp16", "bf16"] | None = None
    eager: bool = True
    config: JsonObject | None = None
    mode: Literal["only"] = "only"
    name: str


def sample(field: str) -> DeclaredKey:
    return next(key for key in keys_of(SampleProperties) if key.field == field)


@pytest.mark.parametrize(
    ("field", "words"),
    [
        ("degree", "an integer greater than 0 or max"),
        ("ratio", "a number greater than 0 and no more than 1"),
        ("seed", "an integer no less than -1 and less than 10"),
        ("dtype", "one of fp16, bf16"),
        ("eager", "true or false"),
        ("config", "a JSON object"),
        ("mode", "only"),
        ("name", "text"),
    ],
)
def test_type_in_words(field: str, words: str) -> None:
    assert sample(field).type == words


@pytest.mark.parametrize(
    ("field", "default"), [("degree", "max"), ("ratio", "0.9"), ("dtype", ""), ("eager", "true"), ("name", "")]
)
def test_default_as_it_would_be_written(field: str, default: str) -> None:
    assert sample(field).default == default


def test_declared_key() -> None:
    key = next(key for key in keys_of(RequestProperties) if key.field == "entry_point")
    assert (key.key, key.aliases) == ("option.entryPoint", ("option.entrypoint", "option.entry_point"))
    assert key.environment == ("OPTION_ENTRYPOINT", "OPTION_ENTRY_POINT")


def test_subclass_declares_the_keys_of_its_base() -> None:
    class BackendProperties(ModelProperties):
        own: int = 1

    assert [key.key for key in keys_of(BackendProperties)] == [
        *(key.key for key in keys_of(ModelProperties)),
        "option.own",
    ]


def test_type_without_keys() -> None:
    assert keys_of(Properties) == ()


@pytest.mark.parametrize(
    ("key", "variable"),
    [("option.entryPoint", "OPTION_ENTRYPOINT"), ("job_queue_size", "SERVING_JOB_QUEUE_SIZE")],
)
def test_environment_variable(key: str, variable: str) -> None:
    assert environment_variable(key) == variable


@pytest.mark.parametrize(
    ("key", "variable"),
    [
        ("option.model_id", "HF_MODEL_ID"),
        ("option.revision", "HF_MODEL_REVISION"),
        ("option.trust_remote_code", "HF_TRUST_REMOTE_CODE"),
        ("option.max_rolling_batch_size", "MAX_BATCH_SIZE"),
        ("job_queue_size", "MAX_CONCURRENT_REQUESTS"),
        ("engine", "OPTION_ENGINE"),
    ],
)
def test_short_environment_names_come_last(key: str, variable: str) -> None:
    keys = {each.key: each for properties_type in CORE_TYPES for each in keys_of(properties_type)}
    assert (keys[key].environment[0], keys[key].environment[-1]) == (environment_variable(key), variable)


@pytest.mark.parametrize(
    ("key", "default"),
    [
        ("engine", "Python"),
        ("job_queue_size", "1000"),
        ("batch_size", "1"),
        ("max_batch_delay", "100"),
        ("retry_threshold", "10"),
        ("max_request_size", "16777216"),
        ("throttle_error_http_code", "503"),
        ("option.rolling_batch", "auto"),
        ("option.output_formatter", ""),
        ("option.tgi_compat", "false"),
        ("option.predict_timeout", ""),
        ("option.model_loading_timeout", "1800"),
        ("option.trust_remote_code", "false"),
        ("option.max_rolling_batch_size", "32"),
    ],
)
def test_core_defaults(key: str, default: str) -> None:
    keys = {each.key: each for properties_type in CORE_TYPES for each in keys_of(properties_type)}
    assert keys[key].default == default


@pytest.mark.parametrize("properties_type", CORE_TYPES)
def test_every_core_key_has_one_line_of_help(properties_type: type[Properties]) -> None:
    for key in keys_of(properties_type):
        assert re.fullmatch(r"[A-Z].+\.", key.help), key.key


def test_no_name_means_two_core_keys() -> None:
    keys = [each for properties_type in CORE_TYPES for each in keys_of(properties_type)]
    names = [name for each in keys for name in (each.key, *each.aliases, *each.environment)]
    assert len(names) == len(set(names))


def test_json_object_takes_text_and_objects() -> None:
    given = [SampleProperties.model_validate({"name": "x", "config": config}) for config in ('{"a": 1}', {"a": 1})]
    assert [each.config for each in given] == [{"a": 1}, {"a": 1}]


@pytest.mark.parametrize("text", ["[1]", "1", "{", "text"])
def test_json_object_refuses_anything_else(text: str) -> None:
    with pytest.raises(ValidationError):
        SampleProperties.model_validate({"name": "x", "config": text})


def test_properties_are_frozen() -> None:
    name = "batch_size"
    with pytest.raises(ValidationError, match="frozen"):
        setattr(ServerProperties(), name, 2)


def test_undeclared_field_is_refused() -> None:
    with pytest.raises(ValidationError, match="extra"):
        ServerProperties.model_validate({"batchsize": 2})
