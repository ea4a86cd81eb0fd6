"""Traced graphs, kept in the cache folder: without weights they are small, and tracing takes a second or more."""

import hashlib
import json
import logging
import os
import tempfile
from contextlib import suppress
from pathlib import Path

import openvino
import torch
import transformers
from transformers import PreTrainedModel

from lmi_core.configuration.cache import cache_folder
from lmi_plugins.torch_engine.model import recurrences, state_layers
from lmi_plugins.torch_engine.model.graph import experts, state_nodes, tracing
from lmi_plugins.torch_engine.model.graph.state_nodes import TracedStates

logger = logging.getLogger(__name__)

CODE = (tracing.__file__, state_nodes.__file__, experts.__file__, state_layers.__file__, recurrences.__file__)
FOLDER = "graphs"  # folder in the cache folder


def load_graph(model: PreTrainedModel, states: TracedStates) -> openvino.Model:
    """Return the model's graph from the cache folder, or trace it and store it there."""
    if not type(model).__module__.startswith("transformers."):  # code that may change
        return _reread(tracing.trace(model, states), states)
    file = cache_folder(os.environ) / FOLDER / f"{_digest(model)}.xml"
    if file.exists():
        try:
            return _read(file)
        except RuntimeError:
            logger.warning("%s cannot be read, and is written again", file, exc_info=True)
    graph = tracing.trace(model, states)
    try:
        _store(graph, file)
        return _read(file)
    except OSError as error:
        logger.info("The graph is not kept in the cache folder: %s", error)
    return _reread(graph, states)


def _reread(graph: openvino.Model, states: TracedStates) -> openvino.Model:
    """Return a graph with states as it is read from a file, which alone can keep their precision."""
    if not states.tables:
        return graph
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "graph.xml"
        _store(graph, file)
        return _read(file)


def _read(file: Path) -> openvino.Model:
    core = openvino.Core()
    core.get_property("CPU", "FULL_DEVICE_NAME")  # which loads the operations of this device
    return core.read_model(file, file.with_suffix(".bin"))


def _digest(model: PreTrainedModel) -> str:
    """Return a name for the graph, which depends on everything that it is made from."""
    weights = [(name, list(weight.shape)) for name, weight in tracing.weights_of(model).items()]
    versions = [torch.__version__, transformers.__version__, openvino.__version__]
    code = [Path(file).read_text() for file in CODE]
    config = {key: value for key, value in model.config.to_dict().items() if key != "_name_or_path"}
    facts = [type(model).__name__, config, weights, versions, code]
    return hashlib.sha256(json.dumps(facts, sort_keys=True, default=str).encode()).hexdigest()[:32]


def _store(graph: openvino.Model, file: Path) -> None:
    """Write the graph atomically for other processes."""
    file.parent.mkdir(parents=True, exist_ok=True)
    unfinished = file.with_name(f"{file.stem}.{os.getpid()}.xml")
    try:
        openvino.serialize(graph, unfinished, unfinished.with_suffix(".bin"))
        unfinished.write_text(state_nodes.keep_precision(unfinished.read_text()))
        unfinished.with_suffix(".bin").replace(file.with_suffix(".bin"))
        unfinished.replace(file)
    finally:
        for suffix in (".xml", ".bin"):
            with suppress(FileNotFoundError):
                unfinished.with_suffix(suffix).unlink()
