from typing import Any

import pytest

from lmi_core.errors import InvalidPayload
from lmi_handlers.fields.vocabulary import refuse_hidden_sequences, sample_as_tgi, sample_if_given, translate


def test_translate() -> None:
    parameters, spellings = translate({"max_tokens": 5, "seed": 1, "stop": None}, {"max_tokens": "max_new_tokens"})
    assert parameters == {"max_new_tokens": 5, "seed": 1}
    assert spellings == {"max_new_tokens": "max_tokens", "seed": "seed"}


def test_translate_refuses_two_names_for_one_parameter() -> None:
    with pytest.raises(InvalidPayload, match="`max_new_tokens` and `max_tokens` are the same parameter"):
        translate({"max_new_tokens": 5, "max_tokens": 5}, {"max_tokens": "max_new_tokens"})


@pytest.mark.parametrize(
    ("parameters", "do_sample"),
    [({}, None), ({"seed": 1}, None), ({"top_p": 0.5}, True), ({"top_p": 0.5, "do_sample": False}, False)],
)
def test_sample_if_asked(parameters: dict[str, Any], do_sample: bool | None) -> None:
    sample_if_given(parameters)
    assert parameters.get("do_sample") is do_sample


@pytest.mark.parametrize(
    ("parameters", "do_sample"),
    [
        ({}, None),
        ({"do_sample": True}, True),
        ({"top_p": 1.0, "top_k": 0}, None),
        ({"top_p": 0.5, "do_sample": False}, True),
        ({"temperature": 0.7, "num_beams": 3}, None),
        ({"temperature": "hot"}, True),
    ],
)
def test_sample_as_tgi(parameters: dict[str, Any], do_sample: bool | None) -> None:
    sample_as_tgi(parameters)
    assert parameters.get("do_sample") is do_sample


@pytest.mark.parametrize("parameters", [{}, {"n": 2}, {"n": 2, "best_of": 2}, {"best_of": "two"}])
def test_sequences_that_are_all_wanted(parameters: dict[str, Any]) -> None:
    refuse_hidden_sequences(parameters, {})


def test_sequences_that_are_not_all_wanted() -> None:
    with pytest.raises(
        InvalidPayload, match=r"`beam_width` must be at most 1, the number of sequences in the stream\. Given: 4"
    ):
        refuse_hidden_sequences({"num_beams": 4}, {"num_beams": "beam_width"})
