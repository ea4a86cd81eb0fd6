from pathlib import Path

import pytest

from lmi_core.configuration.configuration import Setting
from lmi_core.errors import ConfigurationError
from lmi_handlers.container.declarations import COMMAND_LINE
from lmi_handlers.container.search import ModelItem, parse_item, parse_items


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("/models/llama", ModelItem("/models/llama", "-m")),
        ("llama=/models/llama", ModelItem("/models/llama", "-m", "llama")),
        ("[llama]=/models/llama", ModelItem("/models/llama", "-m", "llama")),
        ("llama:v2=/models/llama", ModelItem("/models/llama", "-m", "llama", "v2")),
        ("llama::MPI=/models/llama", ModelItem("/models/llama", "-m", "llama")),
        ("llama::DeepSpeed=/models/llama", ModelItem("/models/llama", "-m", "llama")),
        ("::Python=/models/llama", ModelItem("/models/llama", "-m")),
        ("llama:v2:python:*=file:/models/llama", ModelItem("file:/models/llama", "-m", "llama", "v2", "*")),
        ("llama:::gpu0;gpu1=m", ModelItem("m", "-m", "llama", None, "gpu0;gpu1")),
        ("llama=/models/a=b", ModelItem("/models/a=b", "-m", "llama")),
        ("/models/a=b", ModelItem("/models/a=b", "-m")),
        ("./a=b", ModelItem("./a=b", "-m")),
        ("file:m?x=y", ModelItem("file:m?x=y", "-m")),
        (" llama=m ", ModelItem("m", "-m", "llama")),
    ],
)
def test_an_item(text: str, expected: ModelItem) -> None:
    assert parse_item(text, "-m") == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("llama=", "-m: a model must be given as NAME=DIR. Given: llama="),
        (
            "a:b:c:d:e=m",
            "-m: a:b:c:d:e must have at most the parts NAME:VERSION:ENGINE:DEVICES, with `;` between devices. "
            "Given: a:b:c:d:e=m",
        ),
        (
            "a::PyTorch=m",
            "-m: the engine must be one of Python, MPI, DeepSpeed, FasterTransformer, Rust, OnnxRuntime: "
            "DJLServing's other engines are "
            "for kinds of models that this server does not support. Given: PyTorch in a::PyTorch=m",
        ),
        (
            "a::Pyhton=m",
            "-m: the engine must be one of Python, MPI, DeepSpeed, FasterTransformer, Rust, OnnxRuntime. "
            "Given: Pyhton in a::Pyhton=m",
        ),
    ],
)
def test_an_item_that_is_wrong(text: str, message: str) -> None:
    with pytest.raises(ConfigurationError) as raised:
        parse_item(text, "-m")
    assert raised.value.message == message


def test_what_the_command_line_gave_needs_no_source() -> None:
    with pytest.raises(ConfigurationError) as raised:
        parse_item("llama=", COMMAND_LINE)
    assert raised.value.message == "a model must be given as NAME=DIR. Given: llama="


@pytest.mark.parametrize("text", ["a=x,[b:v1]=y,z", "a=x [b:v1]=y z", " a=x, [b:v1]=y,  z,"])
def test_a_list(text: str) -> None:
    assert parse_items(text, "-m") == [ModelItem("x", "-m", "a"), ModelItem("y", "-m", "b", "v1"), ModelItem("z", "-m")]


def test_separators_in_a_path_that_exists(tmp_path: Path) -> None:
    path = tmp_path / "one, two"
    path.mkdir()
    assert parse_items(f"a={path}", "-m") == [ModelItem(str(path), "-m", "a")]


@pytest.mark.parametrize("devices", ["*", "cpu", "-1", "0;1", "gpu0;gpu1"])
def test_devices_are_a_key_of_the_model(devices: str) -> None:
    item = parse_item(f"[a:::{devices}]=m", "-m")
    assert (item.name, item.overrides) == ("a", (Setting("load_on_devices", devices, "-m"),))
    assert parse_item("a:::=m", "-m").overrides == ()


@pytest.mark.parametrize("devices", ["nc0", "gpu", "0+1", "cpu;0", "0;*", "\u0663", "99999"])
def test_devices_that_are_unknown(devices: str) -> None:
    with pytest.raises(ConfigurationError) as raised:
        parse_item(f"a:::{devices}=m", "-m")
    assert raised.value.message.startswith("-m: the devices must be *, or cpu, or GPUs such as 0, gpu0 or cuda:0")
    assert raised.value.message.endswith(f"Given: {devices} in a:::{devices}=m")
