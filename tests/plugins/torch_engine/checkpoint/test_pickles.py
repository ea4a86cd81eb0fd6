"""Pickled weights: refused unless the operator allows them, and their code is never run, whatever names they have."""

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from lmi_core.errors import ConfigurationError, InvalidAdapter
from lmi_plugins.torch_engine.adapters.peft_adapter import read_directory
from lmi_plugins.torch_engine.embeddings.loading import load_embedding_engine
from lmi_plugins.torch_engine.messages.requests import EngineOptions
from lmi_plugins.torch_engine.model.loading import load_model
from lmi_plugins.torch_engine.worker.inspection import inspect_model
from tests.conftest import ModelDirectory as WriteDirectory
from tests.conftest import RunningServer, Serve
from tests.plugins.torch_engine.adapters.lora_adapters import save_adapter
from tests.plugins.torch_engine.conftest import ModelDirectory
from tests.plugins.torch_engine.embeddings.encoders import save_encoder, save_recipe
from tests.plugins.torch_engine.pickled_code import runs_code, write_pickle
from tests.plugins.torch_engine.tiny_models import reference_model

REFUSED = "is a pickle, which may contain code: get the weights as safetensors, or set option.allow_pickle=true if you"
PICKLED = "pytorch_model.bin"
SINGLE = "model.safetensors"
INDEX = "model.safetensors.index.json"


@pytest.fixture
def folder(model_directory: ModelDirectory, tmp_path: Path) -> Path:
    """Return the folder of a model whose weights are taken away, beside which the code's sign would appear."""
    copy = Path(shutil.copytree(model_directory("llama"), tmp_path / "llama"))
    (copy / SINGLE).rename(tmp_path / "real.safetensors")
    return copy


def index(folder: Path, *shards: str, name: str = INDEX) -> None:
    (folder / name).write_text(json.dumps({"weight_map": {f"weight{i}": shard for i, shard in enumerate(shards)}}))


def names_weights(folder: Path, name: str) -> None:
    """Have config.json name the weights, as transformers reads it."""
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "transformers_weights": name}))


def usual(folder: Path, evil: Path) -> None:
    shutil.copy(evil, folder / PICKLED)


def write_shards(folder: Path, evil: Path) -> None:
    shutil.copy(evil, folder / "pytorch_model-1.bin")
    index(folder, "pytorch_model-1.bin", name=f"{PICKLED}.index.json")


def link(folder: Path, evil: Path) -> None:
    (folder / PICKLED).symlink_to(evil)


def rename_weights(folder: Path, evil: Path) -> None:
    shutil.copy(evil, folder / SINGLE)


def linked_as_safetensors(folder: Path, evil: Path) -> None:
    (folder / SINGLE).symlink_to(evil)


def rename_shard(folder: Path, evil: Path) -> None:
    shutil.copy(evil, folder / "model-1.safetensors")
    index(folder, "model-1.safetensors")


def in_the_index_of_safetensors(folder: Path, evil: Path) -> None:
    shutil.copy(evil, folder / "shard.bin")
    index(folder, "shard.bin")


def named_in_the_configuration(folder: Path, evil: Path) -> None:
    shutil.copy(evil, folder / "adapter_model.bin")
    names_weights(folder, "adapter_model.bin")


def index_named_in_the_configuration(folder: Path, evil: Path) -> None:
    shutil.copy(evil, folder / "shard.bin")
    index(folder, "shard.bin", name="other.safetensors.index.json")
    names_weights(folder, "other.safetensors.index.json")


Way = Callable[[Path, Path], None]
AS_PICKLES: list[Way] = [usual, write_shards, link, named_in_the_configuration]
DISGUISED: list[Way] = [
    rename_weights,
    linked_as_safetensors,
    rename_shard,
    in_the_index_of_safetensors,
    index_named_in_the_configuration,
]


@pytest.mark.parametrize("zipped", [True, False])
@pytest.mark.parametrize("allowed", [False, True])
@pytest.mark.parametrize("way", [*AS_PICKLES, *DISGUISED], ids=lambda way: way.__name__)
def test_pickled_code_is_not_run(folder: Path, way: Way, allowed: bool, zipped: bool) -> None:
    ran, evil = folder.parent / "ran", folder.parent / "evil.bin"
    write_pickle(evil, ran, zipped=zipped)
    assert runs_code(evil, ran)
    way(folder, evil)
    options = EngineOptions(str(folder), allow_pickle=allowed)
    faults = [*inspect_model(options)]
    assert faults
    with pytest.raises(ConfigurationError) as raised:
        load_model(options)
    assert not ran.exists()
    if way in AS_PICKLES:
        told = "Python code besides weights, which is not run" if allowed else REFUSED
        assert (told in faults[0], told in raised.value.message) == (True, True)
    else:
        assert raised.value.message in "; ".join(faults)


@pytest.mark.parametrize("way", [usual, named_in_the_configuration], ids=lambda way: way.__name__)
def test_refused_without_the_option(folder: Path, way: Way) -> None:
    weights = folder.parent / "good.bin"
    torch.save(load_file(folder.parent / "real.safetensors"), weights)
    way(folder, weights)
    with pytest.raises(ConfigurationError, match=REFUSED):
        load_model(EngineOptions(str(folder)))
    if way is usual:
        assert [*inspect_model(EngineOptions(str(folder), allow_pickle=True))] == []
        model = load_model(EngineOptions(str(folder), allow_pickle=True))
        assert model.num_parameters() > 0


def test_safetensors_beside_pickles_are_read(folder: Path) -> None:
    ran = folder.parent / "ran"
    write_pickle(folder / PICKLED, ran, zipped=True)
    (folder.parent / "real.safetensors").rename(folder / SINGLE)
    assert [*inspect_model(EngineOptions(str(folder)))] == []
    load_model(EngineOptions(str(folder)))
    assert not ran.exists()


@pytest.mark.parametrize("shard", ["../real.safetensors", "{parent}/real.safetensors", "sub/../../real.safetensors"])
@pytest.mark.parametrize("named", [False, True])
def test_files_outside_are_not_read(folder: Path, shard: str, named: bool) -> None:
    weights = load_file(folder.parent / "real.safetensors")
    shard = shard.format(parent=folder.parent)
    (folder / "sub").mkdir()
    (folder / INDEX).write_text(json.dumps({"metadata": {}, "weight_map": dict.fromkeys(weights, shard)}))
    if named:
        names_weights(folder, INDEX)
    for allowed in (False, True):
        options = EngineOptions(str(folder), allow_pickle=allowed)
        with pytest.raises(ConfigurationError, match=r"a shard must be a file in the model's own folder\. Given: "):
            load_model(options)
        assert "must be a file in the model's own folder" in "".join(inspect_model(options))


@pytest.mark.parametrize("name", ["../real.safetensors", "/etc/passwd", "../llama/../real.safetensors.index.json"])
def test_the_configuration_names_no_files_outside(folder: Path, name: str) -> None:
    names_weights(folder, name)
    with pytest.raises(ConfigurationError, match=r"`transformers_weights` must be a file in the model's own folder"):
        load_model(EngineOptions(str(folder)))


@pytest.mark.parametrize("name", ["adapter_model.bin", "adapter_model.pt"])
def test_adapters(folder: Path, tmp_path: Path, name: str) -> None:
    (tmp_path / "real.safetensors").rename(folder / SINGLE)
    adapter = save_adapter(tmp_path / "adapter", reference_model(folder), seed=1)
    file, ran = adapter / "adapter_model.safetensors", tmp_path / "ran"
    tensors = load_file(file)
    file.unlink()
    torch.save(tensors, adapter / name)
    with pytest.raises(InvalidAdapter, match=REFUSED):
        read_directory(adapter)
    assert read_directory(adapter, allow_pickle=True).keys()
    for zipped in (True, False):
        write_pickle(adapter / name, ran, zipped=zipped)
        with pytest.raises(InvalidAdapter, match="Python code besides weights, which is not run"):
            read_directory(adapter, allow_pickle=True)
        shutil.copy(adapter / name, file)
        for allowed in (False, True):
            with pytest.raises(InvalidAdapter, match="the adapter cannot be read"):
                read_directory(adapter, allow_pickle=allowed)
        file.unlink()
    assert not ran.exists()
    torch.save([torch.zeros(1)], adapter / name)
    with pytest.raises(InvalidAdapter, match="the file must contain tensors by name"):
        read_directory(adapter, allow_pickle=True)
    save_file(tensors, file)
    assert read_directory(adapter).keys()


def test_layers_behind_a_model(tmp_path: Path) -> None:
    folder, ran = tmp_path / "encoder", tmp_path / "ran"
    folder.mkdir()
    save_encoder(folder, "bert")
    save_recipe(folder, {"pooling_mode_cls_token": True}, dense=8)
    (folder / "2_Dense" / SINGLE).unlink()
    write_pickle(folder / "2_Dense" / PICKLED, ran, zipped=True)
    (fault,) = inspect_model(EngineOptions(str(folder)))
    assert REFUSED in fault
    with pytest.raises(ConfigurationError, match=REFUSED):
        load_embedding_engine(EngineOptions(str(folder)))
    with pytest.raises(ConfigurationError, match="Python code besides weights"):
        load_embedding_engine(EngineOptions(str(folder), allow_pickle=True))
    assert not ran.exists()
    modules = json.loads((folder / "modules.json").read_text())
    (folder / "modules.json").write_text(json.dumps([{**each, "path": "../outside"} for each in modules]))
    told = re.escape("the path of a module must be in the model's own folder. Given: ../outside")
    with pytest.raises(ConfigurationError, match=told):
        load_embedding_engine(EngineOptions(str(folder)))
    assert any(re.search(told, fault) for fault in inspect_model(EngineOptions(str(folder))))


async def test_registered_by_management(folder: Path, serve: Serve, model_dir: WriteDirectory) -> None:
    """Register an adapter, and then a model, whose weights are pickles with code."""
    ran, evil = folder.parent / "ran", folder.parent / "evil"
    shutil.copytree(folder, evil)
    write_pickle(evil / PICKLED, ran, zipped=True)
    (folder.parent / "real.safetensors").rename(folder / SINGLE)
    adapter = save_adapter(folder / "adapter", reference_model(folder), seed=1)
    (adapter / "adapter_model.safetensors").unlink()
    write_pickle(adapter / "adapter_model.bin", ran, zipped=True)
    (folder / "serving.properties").write_text("option.rolling_batch=torch\noption.device=cpu\n")
    (evil / "serving.properties").write_text("option.rolling_batch=torch\noption.device=cpu\n")
    server: RunningServer = await serve(folder)
    answer = await server.post("/models/llama/adapters?name=evil&src=adapter", data=b"")
    assert (answer.status, REFUSED in answer.json()["error"]) == (400, True)
    answer = await server.post(f"/models?url={evil}&model_name=evil", data=b"")
    assert (answer.status < 500, REFUSED in answer.body.decode()) == (True, True)
    assert (await server.post("/invocations", {"inputs": "Hi", "parameters": {"max_new_tokens": 1}})).status == 200
    assert not ran.exists()
