"""The check of a model's weight files by their headers. Imports no torch."""

from pathlib import Path

from lmi_core.errors import ConfigurationError
from lmi_core.inspection.checkpoint import Checkpoint, configured_weights, read_checkpoint
from lmi_core.inspection.model_folder import wrong_files
from lmi_core.inspection.pickles import pickled_adapter, refusal
from lmi_plugins.torch_engine.messages.requests import EngineOptions


def check_weight_files(options: EngineOptions) -> Checkpoint:
    """Return the weights in a folder on this host, or an empty checkpoint for a model of the hub.

    Raise ConfigurationError if a file is missing or damaged, or must not be read.
    """
    folder = Path(options.model)
    if not folder.is_dir():
        return Checkpoint()
    checkpoint = read_checkpoint(folder, configured_weights(folder))
    if fault := refusal([*checkpoint.pickled, *pickled_adapter(folder)], options.allow_pickle):
        raise ConfigurationError(fault)
    if checkpoint.faults:  # an index may name files that must not be read
        raise ConfigurationError("; ".join(wrong_files(folder, checkpoint)))
    return checkpoint
