from collections.abc import Mapping
from typing import Any

import pytest
from pydantic import ValidationError

from lmi_core.generation.parameters import ExtendedParameters
from lmi_plugins.torch_engine.messages.requests import (
    Guide,
    ReasoningLimit,
    Repetition,
    SamplingParameters,
    sampling_parameters,
)

# What each parameter becomes, of those that do not only keep their names.
BECOMES: list[tuple[Mapping[str, Any], Mapping[str, Any]]] = [
    ({"do_sample": True, "temperature": 0.7}, {"temperature": 0.7}),
    ({"temperature": 0.7}, {"temperature": 0.0}),
    ({"n": 3}, {"num_samples": 3}),
    ({"n": 2, "best_of": 5}, {"num_samples": 5}),
    ({"num_beams": 4, "n": 2}, {"num_samples": 1, "num_beams": 4}),
    ({"logit_bias": {"7": 1.5, "12": -3}}, {"logit_bias": {7: 1.5, 12: -3.0}}),
    ({"ignore_eos_token": True}, {"ignore_end": True}),
    ({"stop_token_ids": [4, 5]}, {"stop_token_sequences": [[4], [5]]}),
    ({"bad_sequences": ["one two", " one"]}, {"bad_texts": ["one two", " one"]}),
    ({"allowed_token_ids": [5, 6]}, {"allowed_ids": [5, 6]}),
    ({"logprob_token_ids": [5, 6], "logprobs": 3}, {"top_ids": [5, 6]}),
    (
        {"reasoning_budget": {"tokens": 3, "starts": [[1]], "ends": [[2, 3]], "inside": True}},
        {"reasoning_limit": ReasoningLimit(3, [[1]], [[2, 3]], True)},
    ),
    (
        {"repetition_detection": {"max_pattern_size": 4, "min_pattern_size": 2, "min_count": 3}},
        {"repetition": Repetition(2, 4, 3)},
    ),
    ({"include_stop_str_in_output": True}, {"include_stop": True}),
    ({"logprobs": 2}, {"num_top_tokens": 2}),
    ({"top_n_tokens": 3, "logprobs": 2}, {"num_top_tokens": 3}),
    ({"details": True, "decoder_input_details": True}, {"prompt_log_probs": True}),
    ({"details": True, "prompt_logprobs": 0}, {"prompt_log_probs": True}),
    ({"details": True, "prompt_logprobs": 4}, {"prompt_log_probs": True, "num_prompt_top_tokens": 4}),
    ({"guided_choice": ["a", "b"]}, {"guide": Guide("choice", ["a", "b"])}),
    ({"guided_json": {"type": "null"}}, {"guide": Guide("json", '{"type":"null"}')}),
    ({"guided_regex": "a+"}, {"guide": Guide("regex", "a+")}),
    (
        {"guided_regex": "a+", "guided_reasoning": ["<think>", "</think>"]},
        {"guide": Guide("regex", "a+", ["<think>", "</think>"])},
    ),
    (
        {"guided_structural_tag": '{"format": {"type": "any_text"}}'},
        {"guide": Guide("structural_tag", '{"type":"structural_tag","format":{"type":"any_text"}}')},
    ),
    ({"guided_grammar": 'root ::= "a"'}, {"guide": Guide("grammar", 'root ::= "a"')}),
]
SAME: dict[str, Any] = {
    "top_k": 5,
    "top_p": 0.5,
    "min_p": 0.1,
    "typical_p": 0.9,
    "seed": 3,
    "repetition_penalty": 1.2,
    "presence_penalty": 0.5,
    "frequency_penalty": -0.5,
    "no_repeat_ngram_size": 3,
    "min_length": 4,
    "max_new_tokens": 17,
    "stop_sequences": ["END"],
    "cache_salt": "salt",
    "skip_special_tokens": False,
    "spaces_between_special_tokens": False,
    "length_penalty": 2.0,
    "early_stopping": True,
}
ABOUT_THE_ANSWER = {
    "do_sample",
    "details",
    "return_full_text",
    "truncate",
    "truncation_side",
}  # no engine has to know them


def convert(parameters: Mapping[str, Any]) -> SamplingParameters:
    return sampling_parameters(ExtendedParameters(**parameters))


@pytest.mark.parametrize(("given", "expected"), [*BECOMES, *[({name: SAME[name]},) * 2 for name in SAME]])
def test_parameters_reach_the_engine(given: Mapping[str, Any], expected: Mapping[str, Any]) -> None:
    assert convert(given) == SamplingParameters(**{"temperature": 0.0, **expected})


def test_every_parameter_is_tested_here() -> None:
    tested = {name for given, _ in BECOMES for name in given} | SAME.keys()
    assert ExtendedParameters.model_fields.keys() - ABOUT_THE_ANSWER <= tested


def test_defaults_change_nothing() -> None:
    assert convert({}) == SamplingParameters()


@pytest.mark.parametrize("name", ["n", "best_of"])
def test_beams_are_no_fewer_than_what_is_asked_for(name: str) -> None:
    with pytest.raises(ValidationError, match=f"`{name}` must be at most `num_beams`, 2. Given: 3"):
        ExtendedParameters.model_validate({"num_beams": 2, name: 3})


@pytest.mark.parametrize("details", [True, False])
def test_the_likeliest_tokens_of_a_prompt_are_taken_with_and_without_details(
    details: bool,
) -> None:
    converted = sampling_parameters(ExtendedParameters(prompt_logprobs=2, details=details))
    assert (converted.prompt_log_probs, converted.num_prompt_top_tokens) == (True, 2)
