"""The variables of text-generation-launcher, as launch scripts set them."""

from pathlib import Path

import pytest

from lmi_core.configuration.configuration import Setting
from lmi_core.plugins.loading import load_plugins
from lmi_handlers.cli.plans import launch_plans
from lmi_handlers.container.launch import Launch
from lmi_handlers.container.tgi_environment import NO_SUCH_QUANTIZATION, NOT_READ, QUANTIZATIONS
from tests.conftest import ModelDirectory
from tests.handlers.container.test_launch import Container

SCRIPT = {
    "MODEL_ID": "org/name",
    "REVISION": "v2",
    "NUM_SHARD": "2",
    "DTYPE": "bfloat16",
    "QUANTIZE": "awq",
    "TRUST_REMOTE_CODE": "1",
    "MAX_INPUT_TOKENS": "3000",
    "MAX_TOTAL_TOKENS": "4096",
    "PAYLOAD_LIMIT": "1000000",
    "PORT": "80",
    "HOSTNAME": "3f2a",
}


@pytest.fixture
def container(tmp_path: Path) -> Container:
    return Container(tmp_path)


def common(launch: Launch) -> dict[str, str]:
    return {given.name: f"{given.value} ({given.source})" for given in launch.settings.for_models}


def address(launch: Launch) -> tuple[str, str]:
    return launch.address.host.value, launch.address.port.value


def test_a_launch_script(container: Container) -> None:
    launch = container.launch(environment=SCRIPT, tgi_environment=True)
    assert [model.name for model in launch.models] == ["org_name"]
    assert address(launch) == ("0.0.0.0", "80")
    assert common(launch) == {
        "option.revision": "v2 (environment REVISION)",
        "option.tensor_parallel_degree": "2 (environment NUM_SHARD)",
        "option.dtype": "bfloat16 (environment DTYPE)",
        "option.quantize": "awq (environment QUANTIZE)",
        "option.trust_remote_code": "true (environment TRUST_REMOTE_CODE)",
        "option.max_model_len": "4096 (environment MAX_TOTAL_TOKENS)",
        "max_request_size": "1000000 (environment PAYLOAD_LIMIT)",
        "option.tgi_compat": "true (--tgi-environment)",
    }
    assert [warning.split()[1] for warning in launch.warnings] == ["MAX_INPUT_TOKENS"]


def test_nothing_is_read_without_the_flag(container: Container, model_dir: ModelDirectory) -> None:
    directory = model_dir({"serving.properties": "option.rolling_batch=scripted\n"})
    launch = container.launch(directory, environment=SCRIPT)
    assert address(launch) == ("127.0.0.1", "8080")
    assert launch.settings.for_models == []


def test_the_command_line_and_other_settings_count_first(container: Container, model_dir: ModelDirectory) -> None:
    directory = model_dir(
        {"serving.properties": "option.rolling_batch=vllm\noption.model_id=org/other\noption.dtype=fp16\n"}
    )
    environment = SCRIPT | {"OPTION_QUANTIZE": "gptq"}
    arguments = {"tgi_environment": True, "port": 1, "host": "::1", "options": ("option.revision=v3",)}
    launch = container.launch(directory, environment=environment, **arguments)
    assert (launch.models[0].directory, address(launch)) == (directory, ("::1", "1"))
    plans, errors = launch_plans(launch, environment, load_plugins())
    assert errors == []
    values = {each.key: (each.value, each.source) for each in plans[0].configuration.effective()}
    assert values["option.dtype"] == ("fp16", "serving.properties:3")
    assert values["option.quantize"] == ("gptq", "environment OPTION_QUANTIZE")
    assert values["option.revision"] == ("v3", "command line")
    assert values["option.max_model_len"] == ("4096", "environment MAX_TOTAL_TOKENS")
    assert values["option.tgi_compat"] == ("true", "--tgi-environment")


@pytest.mark.parametrize(
    ("environment", "port", "source"),
    [
        ({}, "3000", "--tgi-environment"),
        ({"SERVING_PORT": "81"}, "81", "environment SERVING_PORT"),
        ({"SERVING_PORT": "81", "PORT": "80"}, "80", "environment PORT"),
    ],
)
def test_ports(container: Container, environment: dict[str, str], port: str, source: str) -> None:
    launch = container.launch("org/name", environment=environment, tgi_environment=True)
    assert launch.address.port == Setting("port", port, source)._replace(name=launch.address.port.name)


@pytest.mark.parametrize(
    ("environment", "degree"),
    [({"SHARDED": "false"}, "1"), ({"SHARDED": "true"}, None), ({"SHARDED": "false", "NUM_SHARD": "2"}, "2")],
)
def test_shards(container: Container, environment: dict[str, str], degree: str | None) -> None:
    launch = container.launch("org/name", environment=environment, tgi_environment=True)
    assert common(launch).get("option.tensor_parallel_degree", " ").split()[:1] == ([degree] if degree else [])


@pytest.mark.parametrize(
    ("variable", "value", "key", "read"),
    [
        ("KV_CACHE_DTYPE", "fp8_e4m3fn", "option.kv_cache_dtype", "fp8_e4m3"),
        ("KV_CACHE_DTYPE", "fp8_e5m2", "option.kv_cache_dtype", "fp8_e5m2"),
        *(("QUANTIZE", name, "option.quantize", name) for name in sorted(QUANTIZATIONS)),
    ],
)
def test_values_have_the_names_that_vllm_knows(
    container: Container, model_dir: ModelDirectory, variable: str, value: str, key: str, read: str
) -> None:
    directory = model_dir({"serving.properties": "option.rolling_batch=vllm\noption.model_id=org/name\n"})
    launch = container.launch(directory, environment={variable: value}, tgi_environment=True)
    assert common(launch)[key] == f"{read} (environment {variable})"
    plans, errors = launch_plans(launch, {}, load_plugins())
    assert (errors, plans[0].warnings) == ([], [])


@pytest.mark.parametrize("method", ["eetq", "exl2", "marlin", "bitsandbytes", "bitsandbytes-nf4", "bitsandbytes-fp4"])
def test_a_quantization_that_no_engine_here_has_is_told(container: Container, method: str) -> None:
    launch = container.launch("org/name", environment={"QUANTIZE": method}, tgi_environment=True)
    assert "option.quantize" not in common(launch)
    (warning,) = launch.warnings
    assert warning == f"environment QUANTIZE has no effect: {NO_SUCH_QUANTIZATION}. Given: {method}"


@pytest.mark.parametrize("name", NOT_READ)
def test_what_is_not_read_is_told(container: Container, name: str) -> None:
    (warning,) = container.launch("org/name", environment={name: "x"}, tgi_environment=True).warnings
    assert warning == f"environment {name} has no effect: {NOT_READ[name]}. Given: x"


def test_errors(container: Container) -> None:
    message = "environment PORT: the port must be an integer from 0 to 65535. Given: tcp://10.0.0.1"
    assert container.error("org/name", environment={"PORT": "tcp://10.0.0.1"}, tgi_environment=True) == message


def test_the_api_key(container: Container) -> None:
    environment = {"API_KEY": "a key, of any=characters"}
    keys = container.launch("org/name", environment=environment, tgi_environment=True).access.api_keys
    assert keys is not None
    found = keys.find(["a key, of any=characters"])
    assert (found and found.name, keys.find(["another"])) == ("tgi", None)
    environment["SERVING_API_KEYS"] = "other"
    keys = container.launch("org/name", environment=environment, tgi_environment=True).access.api_keys
    assert keys is not None
    assert keys.num_holders == 2


def test_origins_of_pages(container: Container) -> None:
    environment = {"CORS_ALLOW_ORIGIN": "https://app.example.com"}
    launch = container.launch("org/name", environment=environment, tgi_environment=True)
    assert launch.access.cross_origin is not None
    assert launch.access.cross_origin.admits("https://app.example.com")
    environment["SERVING_CORS_ALLOWED_ORIGIN"] = "https://other.example"
    rules = container.launch("org/name", environment=environment, tgi_environment=True).access.cross_origin
    assert rules is not None
    assert (rules.admits("https://app.example.com"), rules.admits("https://other.example")) == (False, True)
