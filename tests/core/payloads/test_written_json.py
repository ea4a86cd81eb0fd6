"""JSON objects that are written once, when a request's parameters are checked."""

from typing import Any

import orjson
import pytest
from pydantic import ValidationError

from lmi_core.generation.parameters import ExtendedParameters
from lmi_core.payloads.written_json import WrittenJson, text_of

SCHEMA = {"type": "object", "properties": {"é": {"enum": ["\n", 1.5, None]}}}
TAG = {"type": "structural_tag", "format": {"type": "const_string", "value": "a"}}


@pytest.mark.parametrize(("name", "value"), [("guided_json", SCHEMA), ("guided_structural_tag", TAG)])
def test_parameters_have_their_text(name: str, value: dict[str, Any]) -> None:
    parameters = ExtendedParameters.model_validate({name: value})
    for each in (parameters, parameters.model_copy(update={"max_new_tokens": 3})):
        written = getattr(each, name)
        assert (type(written), written, orjson.loads(written.text)) == (WrittenJson, value, value)
        assert text_of(written) is written.text
    assert text_of(value) == written.text


@pytest.mark.parametrize("name", ["guided_json", "guided_structural_tag"])
def test_what_is_too_deep(name: str) -> None:
    value: dict[str, Any] = {}
    for _ in range(300):
        value = {"items": value}
    with pytest.raises(ValidationError, match="with less nesting"):
        ExtendedParameters.model_validate({name: {"format": value} if name == "guided_structural_tag" else value})
