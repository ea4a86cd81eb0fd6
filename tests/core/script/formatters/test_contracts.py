from __future__ import annotations

from collections.abc import Callable
from typing import Any, Dict, Optional  # noqa: UP035 - as model.py files have them

import pytest

from lmi_core.errors import ConfigurationError
from lmi_core.generation.output import GenerationOutput
from lmi_core.script.djl_names.inputs import Input
from lmi_core.script.formatters.contracts import (
    InputContract,
    OutputContract,
    read_input_contract,
    read_output_contract,
)
from lmi_core.script.formatters.request_io import RequestOutput, TextGenerationOutput


class OwnOutput(TextGenerationOutput):
    pass


def evaluated(annotation: Any) -> Callable[[Any], Any]:
    def function(x: Any) -> Any:
        return x

    function.__annotations__["x"] = annotation
    return function


@pytest.mark.parametrize(
    ("annotation", "contract"),
    [
        (GenerationOutput, OutputContract.GENERATION_OUTPUT),
        ("lmi_core.formatter.GenerationOutput", OutputContract.GENERATION_OUTPUT),
        (TextGenerationOutput, OutputContract.REQUEST_OUTPUT),
        (RequestOutput, OutputContract.REQUEST_OUTPUT),
        (OwnOutput, OutputContract.REQUEST_OUTPUT),
        (Optional[RequestOutput], OutputContract.REQUEST_OUTPUT),  # noqa: UP045
        ("TextGenerationOutput", OutputContract.REQUEST_OUTPUT),
        (dict, OutputContract.RESPONSE_DATA),
        (dict[str, Any], OutputContract.RESPONSE_DATA),
        (Dict[str, Any], OutputContract.RESPONSE_DATA),  # noqa: UP006
        ("Dict[str, Any]", OutputContract.RESPONSE_DATA),
        ("dict | None", OutputContract.RESPONSE_DATA),
        ("ChatCompletionResponse", OutputContract.ENGINE_OBJECT),
    ],
)
def test_annotation_of_an_output_formatter(annotation: Any, contract: OutputContract) -> None:
    assert read_output_contract(evaluated(annotation)) == (contract, None)


def lambda_of(code: str) -> Callable[..., Any]:
    function: Callable[..., Any] = eval(f"lambda {code}")
    return function


@pytest.mark.parametrize(
    ("code", "contract"),
    [
        ("request_output: ''", OutputContract.REQUEST_OUTPUT),
        ("response_data: ''", OutputContract.RESPONSE_DATA),
        ("a, b, c, d, e, f: ''", OutputContract.LEGACY),
        ("token, first, last, details, text, request_id=None: ''", OutputContract.LEGACY),
    ],
)
def test_signature_that_tells(code: str, contract: OutputContract) -> None:
    assert read_output_contract(lambda_of(code)) == (contract, None)


@pytest.mark.parametrize(
    ("code", "contract", "sign"),
    [
        ("output: output.sequences[0]", OutputContract.REQUEST_OUTPUT, "uses `sequences`"),
        ("output, **kwargs: output.model_dump()", OutputContract.ENGINE_OBJECT, "uses `model_dump`"),
        ("output: hasattr(output, 'model_dump')", OutputContract.ENGINE_OBJECT, "uses `model_dump`"),
        ("output: output['generated_text']", OutputContract.RESPONSE_DATA, "uses `generated_text`"),
        ("output: output.choices[0].text", OutputContract.ENGINE_OBJECT, "uses `choices`"),
        ("output: output.get('generated_text')", OutputContract.RESPONSE_DATA, "uses `get`"),
        ("response: response", OutputContract.ENGINE_OBJECT, "the attributes that the function uses do not decide it"),
        ("output: output", OutputContract.REQUEST_OUTPUT, "the attributes that the function uses do not decide it"),
    ],
)
def test_signature_that_leaves_it_open(code: str, contract: OutputContract, sign: str) -> None:
    reading = read_output_contract(lambda_of(code))
    assert reading.contract is contract
    assert reading.ambiguous is not None
    assert sign in reading.ambiguous


@pytest.mark.parametrize(
    ("code", "contract", "doubt"),
    [
        ("output: output.text", OutputContract.GENERATION_OUTPUT, None),
        ("response: response.choices[0]", OutputContract.GENERATION_OUTPUT, None),
        ("a, b, c, d, e, f: ''", OutputContract.LEGACY, None),
        ("response_data: ''", OutputContract.GENERATION_OUTPUT, "`response_data` is the argument's name in djl_python"),
    ],
)
def test_function_with_our_own_decorator(code: str, contract: OutputContract, doubt: str | None) -> None:
    reading = read_output_contract(lambda_of(code), own_decorator=True)
    assert reading.contract is contract
    assert reading.ambiguous is None if doubt is None else doubt in str(reading.ambiguous)


@pytest.mark.parametrize("annotation", [dict, "TextGenerationOutput"])
def test_annotation_counts_before_our_own_decorator(annotation: Any) -> None:
    function = evaluated(annotation)
    assert read_output_contract(function, own_decorator=True) == read_output_contract(function)


@pytest.mark.parametrize("code", [": ''", "a, b: ''", "a, b, c, d, e: ''", "*, output: ''"])
def test_signature_of_no_output_formatter(code: str) -> None:
    with pytest.raises(ConfigurationError, match="must take one argument"):
        read_output_contract(lambda_of(code))


def test_asynchronous_output_formatter() -> None:
    async def f(output: GenerationOutput) -> str:
        return output.delta

    with pytest.raises(ConfigurationError, match="the output formatter f must not be async"):
        read_output_contract(f)


@pytest.mark.parametrize(
    ("annotation", "contract"),
    [(Input, InputContract.INPUT_ITEM), ("Input", InputContract.INPUT_ITEM), (dict, InputContract.PAYLOAD)],
)
def test_annotation_of_an_input_formatter(annotation: Any, contract: InputContract) -> None:
    assert read_input_contract(evaluated(annotation)) == (contract, None)


@pytest.mark.parametrize(
    ("code", "contract", "ambiguous"),
    [
        ("input_item, **kwargs: ''", InputContract.INPUT_ITEM, False),
        ("decoded_payload, tokenizer=None: ''", InputContract.PAYLOAD, False),
        ("x: x.get_as_json()", InputContract.INPUT_ITEM, True),
        ("inputs: inputs", InputContract.INPUT_ITEM, True),
        ("x: x", InputContract.PAYLOAD, True),
    ],
)
def test_signature_of_an_input_formatter(code: str, contract: InputContract, ambiguous: bool) -> None:
    reading = read_input_contract(lambda_of(code))
    assert (reading.contract, reading.ambiguous is not None) == (contract, ambiguous)


def test_input_formatter_without_an_argument() -> None:
    with pytest.raises(ConfigurationError, match="must take the payload as its first argument"):
        read_input_contract(lambda_of(": ''"))
