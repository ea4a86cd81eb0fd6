from pathlib import Path
from typing import Any

import pytest

from lmi_core.backend import BackendSetup
from lmi_core.errors import InvalidParameter
from lmi_core.generation.parameters import ExtendedParameters, GenerationParameters
from lmi_core.generation.reasoning_budget import ReasoningBudget
from lmi_core.generation.repetition import RepetitionDetection
from lmi_core.generation.request import GenerationRequest
from lmi_core.serving.validation import validate
from lmi_core.tolerance import (
    MAX_LISTED_NAMES,
    MAX_REPORTED_NAMES,
    IgnoredParameters,
    drop_unknown,
    ignored_header,
    names_of,
)
from lmi_handlers.tgi.payload import TgiPayload
from lmi_plugins.backends.scripted import ScriptedBackend, ScriptedProperties
from lmi_plugins.trtllm.parameters import TrtllmParameters


def backend_of(parameters_type: type[GenerationParameters]) -> ScriptedBackend:
    class Backend(ScriptedBackend):
        pass

    Backend.parameters_type = parameters_type  # type: ignore[assignment]
    return Backend(BackendSetup(Path("model"), ScriptedProperties(), {}, 0))


def drop(
    parameters: dict[str, Any],
    parameters_type: type[GenerationParameters] = GenerationParameters,
    *,
    strict: bool = False,
    names: dict[str, str] | None = None,
) -> tuple[dict[str, Any], tuple[str, ...]]:
    request = GenerationRequest("a prompt", parameters, names=names or {})
    kept, ignored = drop_unknown(request, backend_of(parameters_type), strict)
    return dict(kept.parameters), ignored


def test_unknown_parameters_are_reported_by_the_client_s_name() -> None:
    given = {"top_p": 0.5, "zzz": 1, "max_tokens": 3}
    assert drop(given, names={"max_tokens": "length"}) == ({"top_p": 0.5}, ("zzz", "length"))


def test_what_is_dropped_stays_within_reach_of_the_model_s_own_code() -> None:
    backend = backend_of(GenerationParameters)
    request, _ = drop_unknown(GenerationRequest("a prompt", {"zzz": 1, "top_p": 0.5, "min_p": 0}), backend, False)
    assert validate(request, backend, "request-1").ignored == {"zzz": 1}


@pytest.mark.parametrize("name", ["exploration", "flora", "sessions", "format"])
def test_what_only_resembles_an_adapter_is_dropped(name: str) -> None:
    assert drop({name: 1}) == ({}, (name,))


def test_what_nobody_knows_stays_where_strict() -> None:
    given = {"top_p": 0.5, "zzz": 1}
    assert drop(given, strict=True) == (given, ())


def test_null_is_not_given() -> None:
    assert drop({"zzz": None, "min_p": None}) == ({}, ())


FURTHER = ExtendedParameters.model_fields.keys() - GenerationParameters.model_fields.keys()
# A value that asks for nothing, of every parameter that some backend lacks.
ASKS_FOR_NOTHING: dict[str, Any] = {
    **{name: ExtendedParameters.model_fields[name].default for name in FURTHER},
    "best_of": 1,
    "min_p": 0,
    "frequency_penalty": 0,
    "logit_bias": {},
    "bad_sequences": [],
    "stop_token_ids": [],
    "top_n_tokens": 0,
    "stop": False,
    "watermark": False,
    "vllm_fields": {},
}


@pytest.mark.parametrize("strict", [True, False])
@pytest.mark.parametrize("parameters_type", [GenerationParameters, TrtllmParameters, ExtendedParameters])
def test_neutral_values_pass_on_every_backend(parameters_type: type[GenerationParameters], strict: bool) -> None:
    backend = backend_of(parameters_type)
    request, ignored = drop_unknown(GenerationRequest("a prompt", ASKS_FOR_NOTHING), backend, strict)
    assert ignored == ()
    assert validate(request, backend, "request-1").parameters.num_sequences == 1


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("min_p", 0.1),
        ("n", 2),
        ("n", True),
        ("skip_special_tokens", 1),
        ("guided_regex", "a+"),
        ("stop", True),
        ("vllm_fields", {"vllm_xargs": {}}),
    ],
)
def test_what_is_known_but_not_taken_is_refused(name: str, value: object) -> None:
    backend = backend_of(GenerationParameters)
    request, ignored = drop_unknown(GenerationRequest("a prompt", {name: value}), backend, False)
    assert ignored == ()
    with pytest.raises(InvalidParameter, match=f"`{name}` is not a field of the scripted backend's parameters"):
        validate(request, backend, "request-1")


@pytest.mark.parametrize("strict", [True, False])
@pytest.mark.parametrize(
    "name",
    ["adapter_id", "adapterName", "my-adaptor", "lora_request", "useLora", "LORA", "output_formatter", "session_id"],
)
def test_what_would_change_the_answer_is_never_dropped(name: str, strict: bool) -> None:
    with pytest.raises(InvalidParameter, match=f"^`{name}` is not a parameter of this request: "):
        drop({name: "a"}, strict=strict)
    assert drop({name: None}, strict=strict) == ({}, ())


def test_a_type_that_takes_any_parameter_gets_all() -> None:
    class Open(GenerationParameters, extra="allow"):
        pass

    assert drop({"zzz": 1, "min_p": 0.5}, Open) == ({"zzz": 1, "min_p": 0.5}, ())


@pytest.mark.parametrize(
    ("names", "header"),
    [
        (["a", "b", "a"], "a, b"),
        (["a,b", "c d", "e\r\nf: g", "h\u00e9", ""], "a?b, c?d, e??f??g, h?, ?"),
        (["x" * 1000], "x" * 60 + "..."),
        ([f"n{i}" for i in range(22)], ", ".join(f"n{i}" for i in range(MAX_LISTED_NAMES)) + ", ...2-more"),
    ],
)
def test_header(names: list[str], header: str) -> None:
    assert ignored_header(names) == header


def test_names_of_objects_within_payloads() -> None:
    assert {"inputs", "parameters", "watermark", "stop"} <= names_of([TgiPayload])
    within = {*ReasoningBudget.model_fields, *RepetitionDetection.model_fields}
    assert names_of([ExtendedParameters]) == {*ExtendedParameters.model_fields, *within}


def test_log_line_comes_once_for_each_name(caplog: pytest.LogCaptureFixture) -> None:
    ignored = IgnoredParameters("m")
    for names in (["temprature", "zzz"], ["zzz"], ["bad\nline", "temperature.x"]):
        ignored.report(names, lambda: ["temperature"])
    said = " (Logged once; option.strict_parameters=true refuses such requests.)"
    assert caplog.messages == [
        f"model m: the request parameter `temprature` is unknown and is ignored. Did you mean `temperature`?{said}",
        f"model m: the request parameter `zzz` is unknown and is ignored.{said}",
        f"model m: the request parameter `bad?line` is unknown and is ignored.{said}",
        f"model m: the request parameter `temperature.x` is unknown and is ignored.{said}",
    ]


def test_names_that_are_made_up_fill_no_log(caplog: pytest.LogCaptureFixture) -> None:
    ignored = IgnoredParameters("m")
    for i in range(MAX_REPORTED_NAMES * 2):
        ignored.report([f"made-up-{i}"], list)
    assert len(caplog.messages) == MAX_REPORTED_NAMES + 1
    assert caplog.messages[-1] == "model m: further ignored request parameters are not logged"
