import re
from pathlib import Path

from pydantic import Field

from lmi_core.configuration.configuration import Configuration
from lmi_core.configuration.properties import ModelProperties, Properties, RequestProperties, ServerProperties, keys_of
from lmi_handlers.cli.report import example


class BackendProperties(ModelProperties):
    dtype: str = Field(default="auto", description="Type of the weights: a|b.")
    max_rolling_batch_size: int = Field(default=64, description="Most requests.")


class BareBackendProperties(ModelProperties):
    pass


TYPES: dict[str, type[Properties]] = {
    "server": ServerProperties,
    "handler": RequestProperties,
    "model": ModelProperties,
    "toy": BackendProperties,
    "bare": BareBackendProperties,
}


def test_example_changes_nothing(tmp_path: Path) -> None:
    (tmp_path / "serving.properties").write_text(example(TYPES))
    assert {value.source for value in load(tmp_path).effective()} == {"default"}


def test_uncommented_example_gives_the_defaults(tmp_path: Path) -> None:
    uncommented = re.sub(r"^#(?! )", "", example(TYPES), flags=re.MULTILINE)
    (tmp_path / "serving.properties").write_text(uncommented)
    given = {value.key: (value.value, value.source) for value in load(tmp_path).effective()}
    for key in keys_of(ServerProperties) + keys_of(RequestProperties) + keys_of(BackendProperties):
        value, source = given[key.key]
        assert value == key.default
        assert source.startswith("serving.properties:") == bool(key.default), key.key


def load(directory: Path) -> Configuration:
    configuration = Configuration.read(directory, {})
    configuration.load(ServerProperties)
    configuration.load(RequestProperties)
    configuration.load(BackendProperties)
    configuration.explain_unread({})
    return configuration


def test_example_shows_help_above_each_key() -> None:
    assert "\n\n# Type of the weights: a|b.\n#option.dtype=auto\n" in example(TYPES)


def test_sections_show_what_a_type_adds_or_changes() -> None:
    sections = dict(re.findall(r"^# == (\w+) ==\n(.*?)(?=^# ==|\Z)", example(TYPES), flags=re.MULTILINE | re.DOTALL))
    assert list(sections) == ["server", "handler", "model", "toy"]
    assert re.findall(r"^#(\S+)=", sections["toy"], flags=re.MULTILINE) == [
        "option.max_rolling_batch_size",
        "option.dtype",
    ]


def test_keys_shared_by_siblings_are_shown_for_both() -> None:
    class SiblingProperties(ModelProperties):
        dtype: str = Field(default="auto", description="Type of the weights: a|b.")

    assert example({"toy": BackendProperties, "sibling": SiblingProperties}).count("#option.dtype=auto") == 2
