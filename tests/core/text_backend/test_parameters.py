"""Each of LMI's further parameters is done for a backend of texts, obeyed by its author, or refused."""

from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest

from lmi_core.generation.parameters import ExtendedParameters, GenerationParameters
from lmi_core.text_backend.backend import DONE, TextBackend
from lmi_handlers.testing.plain import PlainServer, plain_server
from tests.core.text_backend.test_served import Plugin

# With values that have an effect.
NOT_DONE: dict[str, Any] = {
    "num_beams": 2,
    "length_penalty": 2.0,
    "early_stopping": True,
    "min_p": 0.5,
    "typical_p": 0.5,
    "presence_penalty": 1.0,
    "frequency_penalty": 1.0,
    "no_repeat_ngram_size": 2,
    "logit_bias": {"1": 2.0},
    "bad_sequences": ["one"],
    "allowed_token_ids": [1],
    "min_length": 9,
    "repetition_detection": {"max_pattern_size": 1, "min_count": 2},
    "ignore_eos_token": True,
    "stop_token_ids": [1],
    "logprob_token_ids": [1],
    "guided_choice": ["two"],
    "guided_json": {"type": "object"},
    "guided_regex": "t",
    "guided_grammar": 'root ::= "t"',
    "guided_structural_tag": {"type": "structural_tag", "format": {"type": "const_string", "value": "t"}},
    "guided_reasoning": ["a", "b"],
    "reasoning_budget": {"tokens": 1, "starts": [], "ends": [[1]], "inside": True},
}
NEUTRAL = {"num_beams": 1, "min_p": 0, "logit_bias": {}, "bad_sequences": [], "ignore_eos_token": False}


class OwnParameters(ExtendedParameters):
    min_length: int = 0


class EchoBackend(TextBackend[Any]):
    """A backend that says its prompt, and then what it was told of parameters that it obeys."""

    name = "echo"
    parameters_type: ClassVar[type[ExtendedParameters]] = OwnParameters
    obeyed_parameters: ClassVar[Collection[str]] = ("guided_choice",)

    def generate(self, prompt: str, parameters: ExtendedParameters) -> Iterator[str]:
        yield f"{prompt} {parameters.guided_choice} {parameters.min_length} end. more"


class PlainEchoBackend(EchoBackend):
    name = "plain_echo"
    parameters_type = ExtendedParameters
    obeyed_parameters: ClassVar[Collection[str]] = ()


@pytest.fixture(scope="module")
def plain_echo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PlainServer]:
    directory = tmp_path_factory.mktemp("plain_echo")
    (directory / "serving.properties").write_text("option.rolling_batch=plain_echo\n")
    with plain_server(directory, [Plugin(PlainEchoBackend)]) as server:
        yield server


@pytest.fixture(scope="module")
def echo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PlainServer]:
    directory = tmp_path_factory.mktemp("echo")
    (directory / "serving.properties").write_text("option.rolling_batch=echo\n")
    with plain_server(directory, [Plugin(EchoBackend)]) as server:
        yield server


def test_every_parameter_is_done_or_refused() -> None:
    further = ExtendedParameters.model_fields.keys() - GenerationParameters.model_fields.keys()
    assert further == DONE | NOT_DONE.keys()


@pytest.mark.parametrize("name", NOT_DONE)
def test_what_is_not_done_is_refused(plain_echo: PlainServer, name: str) -> None:
    answer = plain_echo.post("/invocations", {"inputs": "one", "parameters": {name: NOT_DONE[name]}})
    assert answer.status == 424, answer.body
    message = f"`{name}` must be omitted: the plain_echo backend does not support it. Given: "
    assert answer.json()["error"].startswith(message)


def test_the_client_s_own_name_is_in_the_message(plain_echo: PlainServer) -> None:
    schema = {"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "object"}}}
    payload = {"messages": [{"role": "user", "content": "one"}], "response_format": schema}
    answer = plain_echo.post("/v1/chat/completions", payload)
    assert answer.status == 400
    assert answer.json()["error"]["message"].startswith("`response_format.json_schema.schema` must be omitted: ")


def test_values_without_effect_are_taken(plain_echo: PlainServer) -> None:
    answer = plain_echo.post("/invocations", {"inputs": "one", "parameters": {"max_new_tokens": 99, **NEUTRAL}})
    assert (answer.status, answer.json()) == (200, {"generated_text": "one None 0 end. more"})


def test_what_the_author_obeys_is_taken(echo: PlainServer) -> None:
    parameters = {"guided_choice": ["a"], "min_length": 7, "max_new_tokens": 99}
    answer = echo.post("/invocations", {"inputs": "one", "parameters": parameters})
    assert (answer.status, answer.json()) == (200, {"generated_text": "one ['a'] 7 end. more"})


def test_a_stop_sequence_can_stay_in_the_text(plain_echo: PlainServer) -> None:
    parameters = {"stop_sequences": ["end."], "include_stop_str_in_output": True, "max_new_tokens": 99}
    answer = plain_echo.post("/invocations", {"inputs": "one", "parameters": parameters})
    assert answer.json() == {"generated_text": "one None 0 end."}


@pytest.mark.parametrize(("prompt", "kept"), [("one two three", "two three"), ("two three", "two three")])
def test_the_prompt_is_truncated_to_its_last_tokens(plain_echo: PlainServer, prompt: str, kept: str) -> None:
    payload = {"inputs": prompt, "parameters": {"truncate": 2, "max_new_tokens": 99}}
    assert plain_echo.post("/invocations", payload).json()["generated_text"].strip() == f"{kept} None 0 end. more"


def test_log_probs_of_the_prompt(plain_echo: PlainServer) -> None:
    payload = {"prompt": "one two", "max_tokens": 1, "prompt_logprobs": 1}
    found = plain_echo.post("/v1/completions", payload).json()["choices"][0]["prompt_logprobs"]
    assert [None if each is None else [one["logprob"] for one in each.values()] for each in found] == [None, [0.0]]


def test_a_chat_template_in_the_model_directory(tmp_path: Path) -> None:
    (tmp_path / "serving.properties").write_text("option.rolling_batch=plain_echo\n")
    (tmp_path / "chat_template.jinja").write_text("{% for message in messages %}[{{ message.content }}]{% endfor %}")
    with plain_server(tmp_path, [Plugin(PlainEchoBackend)]) as server:
        answer = server.post("/v1/chat/completions", {"messages": [{"role": "user", "content": "Hi"}]})
    assert answer.json()["choices"][0]["message"]["content"].startswith("[Hi] ")
