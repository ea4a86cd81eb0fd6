from pathlib import Path

import pytest

from lmi_core.configuration.configuration import Setting
from lmi_core.configuration.properties import ModelProperties, RequestProperties, ServerProperties, keys_of
from lmi_core.errors import ConfigurationError
from lmi_handlers.container.declarations import Declared, Fate
from lmi_handlers.container.server_keys import SERVER_KEYS
from lmi_handlers.container.settings import Settings, for_models, read_file
from lmi_handlers.container.variables import VARIABLES


def in_file(**keys: str) -> list[Setting]:
    return [Setting(key, value, f"config.properties:{line}") for line, (key, value) in enumerate(keys.items(), 1)]


def value(settings: Settings, name: str) -> str | None:
    given = settings.get(name)
    return given.value if given else None


@pytest.mark.parametrize("key", SERVER_KEYS, ids=lambda key: key.name)
def test_no_key_is_taken_in_silence(key: Declared) -> None:
    check_said(key, {f"SERVING_{key.name.upper()}": "x"}, [])
    check_said(key, {}, in_file(**{key.name: "x"}))


@pytest.mark.parametrize("variable", [each for each in VARIABLES if each.factor == 1], ids=lambda each: each.name)
def test_no_variable_is_taken_in_silence(variable: Declared) -> None:
    check_said(variable, {variable.name: "x"}, [])


def check_said(declared: Declared, environment: dict[str, str], file: list[Setting]) -> None:
    """Check that a setting is honoured, or named with the reason in a warning or an error, and that it is shown."""
    if declared.fate is Fate.REFUSED:
        with pytest.raises(ConfigurationError, match=f"{declared.name.upper()}|{declared.name} is refused: "):
            Settings(environment, file)
    else:
        check_taken(declared, environment, file)


def check_taken(declared: Declared, environment: dict[str, str], file: list[Setting]) -> None:
    settings = Settings(environment, file)
    assert [given.name for _, given in settings.shown] == [declared.name]
    assert (value(settings, declared.name) == "x") == (declared.fate is Fate.HONOURED)
    assert [given.name for given in settings.for_models] == list(declared.options)
    if declared.fate is Fate.IGNORED:
        (warning,) = settings.warnings
        assert f"has no effect: {declared.meaning}. Given: " in warning
    else:
        assert settings.warnings == []


def test_a_name_is_declared_once() -> None:
    names = [each.name for each in VARIABLES] + [f"SERVING_{key.name.upper()}" for key in SERVER_KEYS]
    for properties in (ServerProperties, RequestProperties, ModelProperties):
        names += [variable for key in keys_of(properties) for variable in key.environment]
    assert sorted(set(names)) == sorted(names)


def test_messages() -> None:
    settings = Settings({"SERVING_OPTS": "-Dx=y", "SERVING_KEYSTORE_PASS": "secret", "SAGEMAKER_REGON": "eu"})
    assert settings.warnings == [
        "environment SAGEMAKER_REGON is not known. Did you mean `SAGEMAKER_REGION`?",
        "environment SERVING_KEYSTORE_PASS: keystore_pass has no effect: certificate_file and private_key_file are "
        "the server's certificate and its key, in PEM. Given: ***",
        "environment SERVING_OPTS has no effect: this server has no JVM; --log-level sets the lowest level of "
        "messages to log. Given: -Dx=y",
    ]
    assert "secret" not in repr(settings.shown)


def test_an_unknown_key_of_the_file() -> None:
    settings = Settings({}, in_file(max_requst_size="3", nothing_like_it="x", log_format="json"))
    assert settings.warnings == [
        "config.properties:1: max_requst_size is not known. Did you mean `max_request_size`?",
        "config.properties:2: nothing_like_it is not known.",
        "config.properties:3: log_format is not known. Set the variable SERVING_LOG_FORMAT instead",
    ]


def test_the_environment_comes_before_the_file() -> None:
    settings = Settings({"SERVING_model_store": "/a"}, in_file(model_store="/b", load_models="ALL"))
    assert (value(settings, "model_store"), value(settings, "load_models")) == ("/a", "ALL")
    assert settings.warnings == [
        "model_store: the value from config.properties:1 is overridden by the one from environment SERVING_model_store"
    ]
    assert [given.source for _, given in settings.shown] == ["environment SERVING_model_store", "config.properties:2"]


def test_the_same_value_twice_is_no_conflict() -> None:
    assert Settings({"SERVING_MODEL_STORE": "/a"}, in_file(model_store="/a")).warnings == []


@pytest.mark.parametrize(
    ("name", "neutral"),
    [("SAGEMAKER_MULTI_MODEL", "false"), ("SAGEMAKER_SECURE_MODE", "False"), ("SERVING_WAIT_MODEL_LOADING", "true")],
)
def test_values_that_ask_for_nothing(name: str, neutral: str) -> None:
    settings = Settings({name: neutral})
    assert settings.warnings == []
    assert len(settings.shown) == 1


def test_an_empty_variable_is_not_given() -> None:
    settings = Settings({"SAGEMAKER_SECURE_MODE": "", "SERVING_OPTS": " "})
    assert (settings.warnings, settings.shown) == ([], [])


def test_keys_for_every_model() -> None:
    environment = {
        "SAGEMAKER_NUM_MODEL_WORKERS": "2",
        "SAGEMAKER_MAX_PAYLOAD_IN_MB": "3",
        "SAGEMAKER_STARTUP_TIMEOUT": "60",
    }
    settings = Settings(environment, in_file(batch_size="4", min_workers="1"))
    assert {given.name: given.value for given in settings.for_models} == {
        "batch_size": "4",
        "minWorkers": "2",  # the environment comes before the file
        "maxWorkers": "2",
        "max_request_size": str(3 * 1024 * 1024),
        "option.model_loading_timeout": "60",
    }


def test_the_folder_of_downloads_is_honoured() -> None:
    settings = Settings({"SERVING_DOWNLOAD_DIR": "/downloads"})
    assert settings.warnings == []
    ((becomes, given),) = settings.shown
    assert (becomes, given.value) == ("honoured", "/downloads")


def test_no_bound_on_the_payload() -> None:
    assert Settings({"SAGEMAKER_MAX_PAYLOAD_IN_MB": "0"}).for_models == []


def test_bytes_come_before_mebibytes() -> None:
    given = {"SAGEMAKER_MAX_REQUEST_SIZE": "7", "SAGEMAKER_MAX_PAYLOAD_IN_MB": "3"}
    assert Settings(given).for_models[-1].value == "7"


def test_a_size_that_is_no_number() -> None:
    with pytest.raises(ConfigurationError) as raised:
        Settings({"SAGEMAKER_MAX_PAYLOAD_IN_MB": "3 MB"})
    assert raised.value.message == (
        "environment SAGEMAKER_MAX_PAYLOAD_IN_MB must be an integer no less than 0. Given: 3 MB"
    )


def test_models_do_not_see_what_is_the_servers() -> None:
    kept = {"SERVING_BATCH_SIZE": "2", "SERVING_TYPO": "x", "OPTION_DTYPE": "fp16", "HF_MODEL_ID": "m", "PATH": "/bin"}
    taken = {"SERVING_LOAD_MODELS": "a", "serving_opts": "b", "SAGEMAKER_BIND_TO_PORT": "1", "DJL_CACHE_DIR": "/"}
    assert for_models(kept | taken) == kept


def test_reading_a_file(tmp_path: Path) -> None:
    path = tmp_path / "config.properties"
    path.write_text("# x\nload_models=ALL\nport = 1\nport: 2 \nmodel_store=\n")
    assert read_file(path) == [Setting("load_models", "ALL", f"{path}:2"), Setting("port", "2", f"{path}:4")]


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "latin").write_bytes(b"port=\xff")
    expected = {
        "missing": "cannot be read as a config.properties: No such file or directory",
        "latin": "must be UTF-8 text",
    }
    for name, message in expected.items():
        with pytest.raises(ConfigurationError) as raised:
            read_file(tmp_path / name)
        assert raised.value.message.startswith(f"{tmp_path / name} {message}")
