import pytest

from lmi_core.configuration.properties import (
    RequestProperties,
)
from tests.core.model_directories import Directory, error_of


@pytest.mark.parametrize(
    ("text", "expected"),
    [("True", True), ("TRUE", True), ("1", True), ("yes", True), ("false", False), ("No", False), ("0", False)],
)
def test_booleans(directory: Directory, text: str, expected: bool) -> None:
    assert directory.read(f"option.tgi_compat={text}").load(RequestProperties).tgi_compat is expected


@pytest.mark.parametrize(
    ("line", "script"),
    [("option.entryPoint=serve.py", "serve.py"), ("option.entryPoint=djl_python.huggingface", None), ("", None)],
)
def test_script_that_the_entry_point_names(directory: Directory, line: str, script: str | None) -> None:
    assert directory.read(line).load(RequestProperties).script == script


def test_unknown_entry_point_lists_the_known_ones(directory: Directory) -> None:
    message = error_of(directory.read("option.entryPoint=djl_python.nonsense"), RequestProperties)
    assert "must be a Python file (model.py), or one of djl_python.huggingface, djl_python.tensorrt_llm, " in message


@pytest.mark.parametrize(
    ("module", "reason"),
    [
        ("transformers_neuronx", "is for AWS Inferentia and Trainium, which no backend supports; remove it"),
        ("transformers-neuronx", "is for AWS Inferentia and Trainium"),
        ("transformersneuronx", "is for AWS Inferentia and Trainium"),
        (
            "sklearn_handler",
            "is not part of this server: remove it, and let model.py load the model in an @init_handler",
        ),
        ("stable-diffusion", "generates images, but this server generates text"),
    ],
)
def test_entry_point_for_which_there_is_no_backend(directory: Directory, module: str, reason: str) -> None:
    message = error_of(directory.read(f"option.entryPoint=djl_python.{module}"), RequestProperties)
    assert f"option.entryPoint {reason}" in message


@pytest.mark.parametrize("value", ["huggingface", "true", "True"])
def test_ways_to_ask_for_streams(directory: Directory, value: str) -> None:
    assert directory.read(f"option.enable_streaming={value}").load(RequestProperties).enable_streaming
