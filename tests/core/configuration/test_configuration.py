from typing import Annotated, Literal

import pytest
from pydantic import Field, PositiveInt, model_validator

from lmi_core.configuration.configuration import EffectiveValue, Setting
from lmi_core.configuration.properties import (
    NO_MPI,
    JsonObject,
    ModelProperties,
    Names,
    Properties,
    RequestProperties,
    ServerProperties,
)
from lmi_core.errors import ConfigurationError
from tests.core.model_directories import Directory, error_of, load_all


class BackendProperties(ModelProperties):
    tensor_parallel_degree: PositiveInt | Literal["max"] = Field(default=1, description="Devices for one model.")
    speculative_config: JsonObject | None = Field(default=None, description="The draft model.")


def test_everything_is_optional(directory: Directory) -> None:
    configuration = directory.read()
    assert configuration.load(ServerProperties) == ServerProperties()
    assert configuration.load(RequestProperties) == RequestProperties()
    assert configuration.load(ModelProperties) == ModelProperties()
    configuration.explain_unread({})
    assert configuration.warnings == []


def test_a_model_directory_of_an_lmi_container(directory: Directory) -> None:
    configuration = directory.read("""\
engine=MPI
option.model_id = meta-llama/Llama-2-7b-hf \t
option.trust_remote_code=True
option.rolling_batch=lmi-dist
option.tensor_parallel_degree=max
option.entryPoint=djl_python.huggingface
option.revision=
option.speculative_config={"model": "draft", "num_speculative_tokens": 5}
job_queue_size: 20
""")
    assert configuration.load(ServerProperties) == ServerProperties(engine="MPI", job_queue_size=20)
    assert configuration.load(RequestProperties) == RequestProperties(
        rolling_batch="lmi-dist", entry_point="djl_python.huggingface"
    )
    assert configuration.load(BackendProperties) == BackendProperties(
        model_id="meta-llama/Llama-2-7b-hf",
        trust_remote_code=True,
        tensor_parallel_degree="max",
        speculative_config={"model": "draft", "num_speculative_tokens": 5},
    )
    configuration.explain_unread({})
    assert configuration.warnings == [f"serving.properties:1: engine has no effect: {NO_MPI}. Given: MPI"]


@pytest.mark.parametrize("value", ["", "  ", "\\\n"])
def test_empty_value_is_not_given(directory: Directory, value: str) -> None:
    configuration = directory.read(
        f"option.model_id={value}\noption.typo={value}", {"OPTION_OTHER": value.strip("\\\n")}
    )
    assert configuration.load(ModelProperties).model_id is None
    configuration.explain_unread({})


def test_empty_value_gives_way_to_the_environment(directory: Directory) -> None:
    configuration = directory.read("option.model_id=", {"HF_MODEL_ID": "gpt2"})
    assert configuration.load(ModelProperties).model_id == "gpt2"


@pytest.mark.parametrize(
    ("text", "environment", "expected", "source"),
    [
        (None, {}, "", "default"),
        (None, {"HF_MODEL_ID": "short"}, "short", "environment HF_MODEL_ID"),
        (None, {"HF_MODEL_ID": "short", "OPTION_MODEL_ID": "long"}, "long", "environment OPTION_MODEL_ID"),
        ("\noption.model_id=file", {"OPTION_MODEL_ID": "long"}, "file", "serving.properties:2"),
        (None, {"OPTION_model_id": "mixed"}, "mixed", "environment OPTION_model_id"),
        (None, {"option_model_id": "lower"}, "lower", "environment option_model_id"),
    ],
)
def test_precedence(
    directory: Directory, text: str | None, environment: dict[str, str], expected: str, source: str
) -> None:
    configuration = directory.read(text, environment)
    assert (configuration.load(ModelProperties).model_id or "") == expected
    assert configuration.effective()[0] == EffectiveValue("option.model_id", expected, source)


@pytest.mark.parametrize(
    "environment",
    [{"SERVING_JOB_QUEUE_SIZE": "7"}, {"SERVING_job_queue_size": " 7 "}, {"MAX_CONCURRENT_REQUESTS": "7"}],
)
def test_server_properties_from_the_environment(directory: Directory, environment: dict[str, str]) -> None:
    assert directory.read(None, environment).load(ServerProperties).job_queue_size == 7


@pytest.mark.parametrize(
    "variable", ["job_queue_size", "JOB_QUEUE_SIZE", "OPTION_JOB_QUEUE_SIZE", "max_concurrent_requests"]
)
def test_other_variables_mean_nothing_to_the_server(directory: Directory, variable: str) -> None:
    assert directory.read(None, {variable: "7"}).load(ServerProperties).job_queue_size == 1000


@pytest.mark.parametrize(
    ("variable", "value", "field"),
    [("HF_MODEL_REVISION", "main", "revision"), ("HF_TRUST_REMOTE_CODE", "true", "trust_remote_code")],
)
def test_further_names_of_variables(directory: Directory, variable: str, value: str, field: str) -> None:
    properties = directory.read(None, {variable: value}).load(ModelProperties)
    assert str(getattr(properties, field)).lower() == value


@pytest.mark.parametrize("key", ["option.entryPoint", "option.entrypoint", "option.entry_point"])
def test_aliases(directory: Directory, key: str) -> None:
    configuration = directory.read(f"{key}=djl_python.huggingface")
    assert configuration.load(RequestProperties).entry_point == "djl_python.huggingface"
    assert (
        EffectiveValue("option.entryPoint", "djl_python.huggingface", "serving.properties:1")
        in configuration.effective()
    )


def test_primary_spelling_wins_over_an_alias_with_a_warning(directory: Directory) -> None:
    configuration = directory.read(
        "option.entryPoint=djl_python.huggingface\noption.entrypoint=djl_python.tensorrt_llm"
    )
    assert configuration.load(RequestProperties).entry_point == "djl_python.huggingface"
    assert configuration.warnings == [
        "option.entryPoint: the value from serving.properties:2 is overridden by the one from serving.properties:1"
    ]


def test_two_environment_names_are_warned_of(directory: Directory) -> None:
    configuration = directory.read(None, {"HF_MODEL_ID": "short", "OPTION_MODEL_ID": "long"})
    configuration.load(ModelProperties)
    assert configuration.warnings == [
        "option.model_id: the value from environment HF_MODEL_ID is overridden by the one from environment "
        "OPTION_MODEL_ID"
    ]


def test_same_value_twice_needs_no_warning(directory: Directory) -> None:
    configuration = directory.read("option.model_id=a\noption.model_id=a", {"HF_MODEL_ID": "b", "OPTION_MODEL_ID": "b"})
    configuration.load(ModelProperties)
    assert configuration.warnings == []


def test_last_of_a_repeated_key_wins_with_a_warning(directory: Directory) -> None:
    configuration = directory.read("option.model_id=first\nbatch_size=2\noption.model_id=last")
    assert configuration.load(ModelProperties).model_id == "last"
    assert configuration.warnings == [
        "option.model_id: the value from serving.properties:1 is overridden by the one from serving.properties:3"
    ]


@pytest.mark.parametrize(
    ("line", "demand"),
    [
        ("option.max_rolling_batch_size=-1", "must be an integer greater than 0. Given: -1"),
        ("option.max_rolling_batch_size=many", "must be an integer greater than 0. Given: many"),
        ("option.trust_remote_code=maybe", "must be true or false. Given: maybe"),
        ("option.tensor_parallel_degree=0", "must be an integer greater than 0 or max. Given: 0"),
        ("option.speculative_config={", "must be a JSON object. Given: {"),
    ],
)
def test_invalid_value(directory: Directory, line: str, demand: str) -> None:
    key = line.partition("=")[0]
    assert error_of(directory.read(f"# model\n\n{line}"), BackendProperties) == f"serving.properties:3: {key} {demand}"


def test_invalid_value_of_the_environment_names_the_variable(directory: Directory) -> None:
    configuration = directory.read(None, {"MAX_BATCH_SIZE": "0"})
    assert error_of(configuration, ModelProperties) == (
        "environment MAX_BATCH_SIZE: option.max_rolling_batch_size must be an integer greater than 0. Given: 0"
    )


def test_invalid_values_have_a_line_each(directory: Directory) -> None:
    message = error_of(directory.read("engine=A\\nB\nbatch_size=0"), ServerProperties)
    assert [line.partition(": ")[0] for line in message.splitlines()] == [
        "serving.properties:1",
        "serving.properties:2",
    ]


def test_required_key(directory: Directory) -> None:
    class Required(Properties):
        draft_model: str

    assert error_of(directory.read(), Required) == "serving.properties: option.draft_model is required"


def test_keys_that_contradict_each_other(directory: Directory) -> None:
    class Contradicting(Properties):
        least: int = 0
        most: int = 9

        @model_validator(mode="after")
        def _ordered(self) -> "Contradicting":
            if self.least > self.most:
                raise ValueError("option.least must be no more than option.most")
            return self

    message = error_of(directory.read("option.least=10"), Contradicting)
    assert message == "serving.properties: option.least must be no more than option.most"


def test_pass_through(directory: Directory) -> None:
    configuration = directory.read(
        "option.max_model_len = 4096 \noption.revision=main\noption.dtype=", {"OPTION_ENFORCE_EAGER": "true"}
    )
    configuration.load(ModelProperties)
    accepted = ["max_model_len", "enforce_eager", "revision", "dtype", "seed"]
    assert configuration.pass_through(accepted) == {"max_model_len": "4096", "enforce_eager": "true"}
    configuration.explain_unread({})
    assert configuration.effective()[-2:] == [
        EffectiveValue("option.enforce_eager", "true", "environment OPTION_ENFORCE_EAGER"),
        EffectiveValue("option.max_model_len", "4096", "serving.properties:1"),
    ]


def test_pass_through_prefers_the_file(directory: Directory) -> None:
    configuration = directory.read("option.seed=1", {"OPTION_SEED": "2"})
    assert configuration.pass_through({"seed"}) == {"seed": "1"}


def test_a_wrong_value_gives_way_to_the_default_until_all_errors_are_told(directory: Directory) -> None:
    configuration = directory.read("job_queue_size=0\nbatch_size=2\noption.predict_timeout=never")
    assert configuration.load(ServerProperties) == ServerProperties(batch_size=2)
    assert configuration.load(RequestProperties) == RequestProperties()
    assert [error.partition(" must")[0] for error in configuration.errors] == [
        "serving.properties:1: job_queue_size",
        "serving.properties:3: option.predict_timeout",
    ]


def test_effective_lists_every_declared_key_in_order(directory: Directory) -> None:
    configuration = directory.read("option.revision=main")
    configuration.load(ModelProperties)
    assert configuration.effective() == [
        EffectiveValue("option.model_id", "", "default"),
        EffectiveValue("option.revision", "main", "serving.properties:1"),
        EffectiveValue("option.trust_remote_code", "false", "default"),
        EffectiveValue("option.allow_pickle", "false", "default"),
        EffectiveValue("option.max_rolling_batch_size", "32", "default"),
        EffectiveValue("option.adapters", "adapters", "default"),
        EffectiveValue("option.task", "", "default"),
    ]


def test_malformed_file_names_the_line(directory: Directory) -> None:
    with pytest.raises(ConfigurationError, match=r"^serving\.properties:2: "):
        directory.read("a=b\nc=\\u12")


def test_file_that_is_not_utf8(directory: Directory) -> None:
    (directory.path / "serving.properties").write_bytes(b"option.model_id=caf\xe9")
    with pytest.raises(ConfigurationError, match=r"^serving\.properties must be UTF-8 text: "):
        directory.read()


def test_file_with_byte_order_mark(directory: Directory) -> None:
    assert directory.read("\ufeffengine=MPI").load(ServerProperties).engine == "MPI"


def test_the_servers_keys_come_after_the_models_own(directory: Directory) -> None:
    common = [
        Setting("job_queue_size", "1", "config.properties:1"),
        Setting("batch_size", "2", "config.properties:2"),
        Setting("max_batch_delay", "3", "config.properties:3"),
        Setting("option.predict_timeout", "4", "environment OTHER"),
    ]
    configuration = directory.read("job_queue_size=5\n", {"SERVING_BATCH_SIZE": "6"}, common)
    load_all(configuration, ServerProperties, RequestProperties)
    effective = {each.key: each for each in configuration.effective()}
    assert effective["job_queue_size"].value == "5"
    assert effective["batch_size"].value == "6"
    assert effective["max_batch_delay"] == EffectiveValue("max_batch_delay", "3", "config.properties:3")
    assert effective["option.predict_timeout"] == EffectiveValue("option.predict_timeout", "4", "environment OTHER")
    assert configuration.warnings == []


def test_the_last_of_the_servers_keys_counts(directory: Directory) -> None:
    common = [Setting("batch_size", "2", "config.properties:2"), Setting("batch_size", "3", "environment OTHER")]
    configuration = directory.read(common=common)
    assert configuration.load(ServerProperties).batch_size == 3
    assert configuration.warnings == [
        "batch_size: the value from config.properties:2 is overridden by the one from environment OTHER"
    ]


def test_a_wrong_value_of_the_servers(directory: Directory) -> None:
    configuration = directory.read(common=[Setting("batch_size", "many", "config.properties:2")])
    assert error_of(configuration, ServerProperties) == (
        "config.properties:2: batch_size must be an integer greater than 0. Given: many"
    )


def test_overrides_count_before_file_and_environment(directory: Directory) -> None:
    overrides = [Setting(key, value, "command line") for key, value in (("batch_size", "7"), ("predict_timeout", "8"))]
    file = "batch_size=5\noption.predict_timeout=6\n"
    configuration = directory.read(file, {"SERVING_BATCH_SIZE": "6"}, overrides=overrides)
    load_all(configuration, ServerProperties, RequestProperties)
    effective = {each.key: each for each in configuration.effective()}
    assert effective["batch_size"] == EffectiveValue("batch_size", "7", "command line")
    assert effective["option.predict_timeout"] == EffectiveValue("option.predict_timeout", "8", "command line")
    assert configuration.warnings == []


def test_override_by_an_older_name(directory: Directory) -> None:
    class Engine(Properties):
        degree: Annotated[int, Names(aliases=("size",))] = 1

    configuration = directory.read("option.degree=2\n", overrides=[Setting("option.size", "3", "command line")])
    assert configuration.load(Engine).degree == 3


def test_the_last_override_of_a_key_counts(directory: Directory) -> None:
    overrides = [Setting("batch_size", "7", "command line"), Setting("batch_size", "8", "command line")]
    assert directory.read(overrides=overrides).load(ServerProperties).batch_size == 8


def test_overrides_that_are_wrong_or_unknown(directory: Directory) -> None:
    configuration = directory.read(overrides=[Setting("batch_size", "0", "command line")])
    assert error_of(configuration, ServerProperties).startswith("command line: batch_size must be ")
    configuration = directory.read(overrides=[Setting("batch_sise", "1", "command line")])
    with pytest.raises(ConfigurationError) as raised:
        load_all(configuration, ServerProperties)
    assert raised.value.message == "command line: batch_sise is not a known key; did you mean batch_size?"


def test_overrides_for_the_engine(directory: Directory) -> None:
    configuration = directory.read("option.seed=1\n", overrides=[Setting("option.seed", "2", "command line")])
    assert configuration.pass_through(["seed"]) == {"seed": "2"}
