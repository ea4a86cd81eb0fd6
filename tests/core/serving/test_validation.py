from pathlib import Path
from typing import Any

import pytest

from lmi_core.backend import BackendSetup
from lmi_core.errors import ContextLengthExceeded, InvalidParameter
from lmi_core.generation.parameters import ExtendedParameters
from lmi_core.generation.request import GenerationRequest, ValidRequest
from lmi_core.serving.validation import validate
from lmi_plugins.backends.scripted import ScriptedBackend, ScriptedProperties, WordTokenizer

CONTEXT = 100


def scripted_backend() -> ScriptedBackend:
    backend = ScriptedBackend(BackendSetup(Path("model"), ScriptedProperties(), {}, 0))
    backend.max_length = CONTEXT
    return backend


def check(parameters: dict[str, Any], prompt: str = "one two three") -> ValidRequest:
    return validate(GenerationRequest(prompt, parameters), scripted_backend(), "request-1")


def nested(depth: int) -> dict[str, object]:
    value: dict[str, object] = {}
    for _ in range(depth):
        value = {"not": value}
    return value


def error_of(parameters: dict[str, Any], prompt: str = "one two three") -> InvalidParameter:
    with pytest.raises(InvalidParameter) as raised:
        check(parameters, prompt)
    return raised.value


def test_valid_request() -> None:
    parameters = {"do_sample": True, "temperature": 0.5, "n": 2}
    request = check(parameters, "one two one two")
    assert (request.request_id, request.prompt) == ("request-1", "one two one two")
    assert request.prompt_ids == [0, 1, 2, 1]
    assert request.parameters == ExtendedParameters(do_sample=True, temperature=0.5, n=2)


def test_prompt_of_token_ids() -> None:
    backend = scripted_backend()
    ids = backend.tokenizer.encode("one two three")
    request = validate(GenerationRequest([ids[2], ids[0]], {}), backend, "request-1")
    assert (request.prompt, request.prompt_ids) == (" threeone", [2, 0])


@pytest.mark.parametrize("wrong", [-1, 3])
def test_token_id_that_there_is_not(wrong: int) -> None:
    backend = scripted_backend()
    backend.tokenizer.encode("one two three")
    request = GenerationRequest([0, wrong], {}, names={"inputs": "prompt"})
    message = f"^`prompt` must contain token ids from 0 to 2; {wrong} is out of vocabulary$"
    with pytest.raises(InvalidParameter, match=message):
        validate(request, backend, "request-1")


@pytest.mark.parametrize("add_special_tokens", [True, False])
def test_special_tokens_around_a_text(add_special_tokens: bool) -> None:
    class BracketTokenizer(WordTokenizer):
        def encode(self, text: str, add_special_tokens: bool = True) -> list[int]:
            return super().encode(f"<s> {text}" if add_special_tokens else text)

    backend = scripted_backend()
    backend.tokenizer = BracketTokenizer()
    request = validate(GenerationRequest("a b", {}, add_special_tokens), backend, "request-1")
    assert request.prompt == "a b"
    assert len(request.prompt_ids) == 2 + add_special_tokens


def test_null_is_not_given() -> None:
    given = dict.fromkeys(ExtendedParameters.model_fields)
    request = check(given)
    assert request.parameters == ExtendedParameters()
    assert request.parameters.model_fields_set == set()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("seed", 0),
        ("seed", 2**63 - 1),
        ("temperature", 0),
        ("temperature", 0.0),
        ("temperature", 100),
        ("repetition_penalty", 0.01),
        ("repetition_penalty", 100),
        ("top_k", -1),
        ("top_k", 0),
        ("top_k", 10**6),
        ("top_p", 0.001),
        ("top_p", 1),
        ("max_new_tokens", 1),
        ("max_new_tokens", CONTEXT - 3),
        ("stop_sequences", []),
        ("stop_sequences", ["x"] * 64),
        ("n", 1),
        ("n", 64),
    ],
)
def test_value_at_its_bound(name: str, value: object) -> None:
    assert getattr(check({name: value}).parameters, name) == value


@pytest.mark.parametrize(
    ("name", "value", "bound"),
    [
        ("seed", -2, "must be greater than or equal to -1"),
        ("seed", 2**63, "must be less than 9223372036854775808"),
        ("temperature", -0.1, "must be greater than or equal to 0"),
        ("temperature", 100.1, "must be less than or equal to 100"),
        ("temperature", float("inf"), "must be less than or equal to 100"),
        ("temperature", float("nan"), "must be less than or equal to 100"),
        ("repetition_penalty", 0, "must be greater than 0"),
        ("repetition_penalty", 101, "must be less than or equal to 100"),
        ("top_k", -2, "must be greater than or equal to -1"),
        ("top_p", 0, "must be greater than 0"),
        ("top_p", 1.01, "must be less than or equal to 1"),
        ("max_new_tokens", 0, "must be greater than or equal to 1"),
        ("n", 0, "must be greater than or equal to 1"),
        ("n", 65, "must be less than or equal to 64"),
        ("stop_sequences", ["x"] * 65, "must have at most 64 items"),
        ("guided_json", nested(300), "must be a JSON schema with less nesting"),
    ],
)
def test_value_past_its_bound(name: str, value: object, bound: str) -> None:
    message = error_of({name: value}).message
    assert message.startswith(f"`{name}` {bound}. Given: {repr(value)[:20]}")


@pytest.mark.parametrize(
    ("name", "value", "demand"),
    [
        ("max_new_tokens", "thirty", "must be a valid integer"),
        ("max_new_tokens", True, "must be a valid integer"),
        ("max_new_tokens", 30.5, "must be a valid integer"),
        ("max_new_tokens", 1e300, "must be a valid integer"),
        ("seed", "9" * 19, "must be a valid integer"),
        ("top_k", False, "must be a valid integer"),
        ("temperature", "0,5", "must be a valid number"),
        ("temperature", "nan", "must be a valid number"),
        ("temperature", True, "must be a valid number"),
        ("top_p", [0.5], "must be a valid number"),
        ("do_sample", 1, "must be a valid boolean"),
        ("details", "yes", "must be a valid boolean"),
        ("stop_sequences", 3, "must be a valid list"),
    ],
)
def test_types_are_those_of_json(name: str, value: object, demand: str) -> None:
    assert error_of({name: value}).message == f"`{name}` {demand}. Given: {value!r}"


@pytest.mark.parametrize(
    ("name", "given", "value"),
    [
        ("max_new_tokens", 30.0, 30),
        ("max_new_tokens", "3e1", 30),
        ("seed", "9007199254740993", 2**53 + 1),  # which no double is
        ("top_k", "-1", -1),
        ("temperature", "0.5", 0.5),
        ("details", "True", True),
        ("best_of", "2", 2),
    ],
)
def test_same_value_of_another_type(name: str, given: object, value: object) -> None:
    assert getattr(check({name: given}).parameters, name) == value


@pytest.mark.parametrize(
    ("stop_sequences", "message"),
    [
        (["a", ""], "`stop_sequences.1` must have at least 1 character. Given: ''"),
        ([3], "`stop_sequences.0` must be a valid string. Given: 3"),
    ],
)
def test_stop_sequences_are_texts(stop_sequences: object, message: str) -> None:
    assert error_of({"stop_sequences": stop_sequences}).message == message


@pytest.mark.parametrize(
    ("name", "message"),
    [
        (
            "max_tokens",
            "`max_tokens` is not a field of the scripted backend's parameters. Did you mean `max_new_tokens`?",
        ),
        ("zzz", "`zzz` is not a field of the scripted backend's parameters."),
    ],
)
def test_unknown_parameter(name: str, message: str) -> None:
    assert error_of({name: 3}).message == message


def test_unknown_parameter_that_is_null_is_not_given() -> None:
    assert check({"zzz": None}).parameters == ExtendedParameters()


@pytest.mark.parametrize("details", [True, False])
@pytest.mark.parametrize("given", [{"decoder_input_details": True}, {"prompt_logprobs": 0}, {"logprobs": 1}])
def test_what_is_part_of_the_details_is_taken_without_them(given: dict[str, Any], details: bool) -> None:
    assert check({**given, "details": details}).parameters.wants_prefill is ("logprobs" not in given)


def test_seed_of_minus_one_is_random() -> None:
    assert check({"seed": -1}).parameters.seed is None


def test_one_stop_sequence_as_a_string() -> None:
    assert check({"stop_sequences": "end"}).parameters.stop_sequences == ["end"]


def test_empty_prompt() -> None:
    error = error_of({}, "")
    assert error.kind == "invalid_parameter"
    assert error.message == "`inputs` must contain at least one token. Given: 0"


@pytest.mark.parametrize("length", [CONTEXT, CONTEXT + 1])
def test_prompt_too_long(length: int) -> None:
    error = error_of({"max_new_tokens": 1}, " x" * length)
    assert error.kind == "context_length_exceeded"
    assert error.message == f"`inputs` must be at most {CONTEXT - 1} tokens long. Given: {length}"


class Unread(WordTokenizer):
    """A tokenizer that is not asked for texts that are surely too long."""

    def min_tokens(self, text: str) -> int:
        return len(text) // 2

    def encode(self, text: str, add_special_tokens: bool = True) -> list[int]:
        assert len(text) <= 2 * CONTEXT, "the text is too long to be tokenized"
        return super().encode(text, add_special_tokens)


def test_prompt_that_is_surely_too_long_is_not_tokenized() -> None:
    backend = scripted_backend()
    backend.tokenizer = Unread()
    with pytest.raises(ContextLengthExceeded) as refused:
        validate(GenerationRequest("x" * 5000, {}), backend, "request-1")
    assert refused.value.message == f"`inputs` must be at most {CONTEXT - 1} tokens long. Given: at least 2500"
    assert validate(GenerationRequest("x" * 190, {}), backend, "request-1").prompt_ids == [0]
    with pytest.raises(AssertionError):  # what is cut to fit is tokenized first
        validate(GenerationRequest("x" * 5000, {"truncate": 10}), backend, "request-1")


def test_longest_prompt() -> None:
    assert check({}, " x" * (CONTEXT - 1)).parameters.max_new_tokens == 1


def test_max_new_tokens_past_the_context() -> None:
    error = error_of({"max_new_tokens": 91}, " x" * 10)
    assert isinstance(error, ContextLengthExceeded)
    assert error.message == (
        "`max_new_tokens` must be at most 90 after a prompt of 10 tokens (the model's context is 100). Given: 91"
    )


@pytest.mark.parametrize(("length", "expected"), [(70, 30), (71, 29), (90, 10)])
def test_default_max_new_tokens_gives_way_to_the_context(length: int, expected: int) -> None:
    request = check({"temperature": 0.5}, " x" * length)
    assert request.parameters.max_new_tokens == expected
    assert request.parameters.temperature == 0.5


@pytest.mark.parametrize(
    ("parameters", "prompt", "message"),
    [
        ({"max_new_tokens": 0}, "a", "`max_tokens` must be greater than or equal to 1. Given: 0"),
        ({"stop_sequences": [""]}, "a", "`stop.0` must have at least 1 character. Given: ''"),
        ({"max_new_tokens": 100}, "a", "`max_tokens` must be at most 99 after a prompt of 1 tokens"),
        ({}, "", "`prompt` must contain at least one token. Given: 0"),
        ({}, " x" * CONTEXT, "`prompt` must be at most 99 tokens long. Given: 100"),
    ],
)
def test_messages_use_the_names_of_the_client(parameters: dict[str, Any], prompt: str, message: str) -> None:
    names = {"max_new_tokens": "max_tokens", "stop_sequences": "stop", "inputs": "prompt"}
    with pytest.raises(InvalidParameter) as raised:
        validate(GenerationRequest(prompt, parameters, names=names), scripted_backend(), "request-1")
    assert raised.value.message.startswith(message)


def test_request_that_ends_with_the_context() -> None:
    request = GenerationRequest(" x" * 90, {"max_new_tokens": 91}, fits_context=True)
    assert validate(request, scripted_backend(), "request-1").parameters.max_new_tokens == 10


def limited_error(parameters: dict[str, Any], prompt: str = "one two three") -> str:
    backend = scripted_backend()
    backend.max_input_length, backend.max_output_length = 4, 10
    with pytest.raises(ContextLengthExceeded) as refused:
        validate(GenerationRequest(prompt, parameters), backend, "request-1")
    return refused.value.message


def test_a_backend_may_take_less_than_its_context_holds() -> None:
    assert limited_error({}, "one two three four five") == "`inputs` must be at most 4 tokens long. Given: 5"
    assert limited_error({"max_new_tokens": 11}) == "`max_new_tokens` must be at most 10. Given: 11"


@pytest.mark.parametrize(("parameters", "fits_context"), [({}, False), ({"max_new_tokens": 99}, True)])
def test_a_default_gives_way_to_what_a_backend_generates(parameters: dict[str, Any], fits_context: bool) -> None:
    backend = scripted_backend()
    backend.max_output_length = 10
    request = GenerationRequest("one two three", parameters, fits_context=fits_context)
    assert validate(request, backend, "request-1").parameters.max_new_tokens == 10


@pytest.mark.parametrize("token_id", ["99999999999999999999", "9" * 5000, "-1", "a", "\u0663"])
def test_bias_of_what_is_no_token_id(token_id: str) -> None:
    message = error_of({"logit_bias": {token_id: 1}}).message
    assert message.startswith("`logit_bias` must map token ids to numbers. Given: '")
    assert len(message) < 300
