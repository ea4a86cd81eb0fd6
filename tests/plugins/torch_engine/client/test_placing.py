"""Adapters that cannot be copied to a worker's node, and the name by which servers share engines."""

import logging
import os
from pathlib import Path

import pytest

from lmi_core.errors import ConfigurationError
from lmi_core.logs.loading_progress import Report, unheard
from lmi_core.remote.copies import CURRENT
from lmi_core.remote.nodes.sending import NodeFiles
from lmi_core.workers.placement import ANYWHERE
from lmi_plugins.torch_engine.client.placing import sharing_name, with_files
from lmi_plugins.torch_engine.messages.requests import EngineOptions


class Node(NodeFiles):
    """A node that takes every folder except `bad`."""

    def __init__(self) -> None:
        pass

    async def bring(self, folder: Path, report: Report) -> Path:
        if folder.name == "bad":
            raise ConfigurationError("node 10.0.0.2: the disk is full")
        return Path("/copies", folder.name)


def options(folder: Path, leaves_out: bool) -> EngineOptions:
    for name in ("good", "bad"):
        (folder / name).mkdir()
    adapters = {name: str(folder / name) for name in ("good", "bad")}
    return EngineOptions("a model of the hub", adapters=adapters, leaves_out_adapters=leaves_out)


async def test_an_adapter_that_cannot_be_copied_fails_the_first_start(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"^adapter bad: node 10.0.0.2: the disk is full$"):
        await with_files(options(tmp_path, False), Node(), unheard)


async def test_a_later_engine_starts_without_it(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    found = await with_files(options(tmp_path, True), Node(), unheard)
    assert found.adapters == {"good": "/copies/good"}
    (record,) = caplog.records
    assert record.levelno == logging.ERROR
    reason = "node 10.0.0.2: the disk is full"
    assert record.message == f"the adapter bad could not be copied again and was removed: {reason}"


def test_servers_share_engines_with_the_same_options_and_files(tmp_path: Path) -> None:
    model = tmp_path / "version" / "model"
    model.mkdir(parents=True)
    weights = model / "model.safetensors"
    weights.write_bytes(b"weights")
    shared = ANYWHERE._replace(ray_address="auto", ray_shared=True)
    options = EngineOptions(str(model))
    name = sharing_name(options, shared)
    assert name == sharing_name(options, shared) != sharing_name(EngineOptions(str(model), max_batch_size=2), shared)
    changed = weights.stat().st_mtime_ns + 1
    os.utime(weights, ns=(changed, changed))
    assert sharing_name(options, shared) != name
    (tmp_path / CURRENT).touch()  # as in a copy, whose path contains its version
    name = sharing_name(options, shared)
    os.utime(weights, ns=(changed + 1, changed + 1))
    assert sharing_name(options, shared) == name
    (model / os.fsdecode(b"\xff")).touch()
    (tmp_path / CURRENT).unlink()
    assert sharing_name(options, shared) is not None
    assert sharing_name(options, ANYWHERE) is None
