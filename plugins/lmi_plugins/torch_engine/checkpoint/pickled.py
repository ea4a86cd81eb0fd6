"""The weights in pickled PyTorch files, read without their data and without running their code."""

import warnings
from collections.abc import Iterable
from pathlib import Path
from pickle import UnpicklingError
from typing import Any
from zipfile import is_zipfile

import torch
from transformers.modeling_utils import str_to_torch_dtype

from lmi_core.errors.fault import Fault
from lmi_core.inspection.checkpoint import Checkpoint
from lmi_core.inspection.safetensors_header import WeightFacts

META = "meta"
NAMES = {data_type: name for name, data_type in str_to_torch_dtype.items()}


def add_pickled(checkpoint: Checkpoint) -> Checkpoint:
    """Return the checkpoint with the weights and faults of its pickled files.

    Files in PyTorch's format before 1.6 are skipped, because they cannot be read without their data.
    """
    weights, faults = dict(checkpoint.weights), list(checkpoint.faults)
    if all(is_zipfile(file) for file in checkpoint.pickled):
        for file in checkpoint.pickled:
            try:
                weights |= _read(file)
            except Fault as fault:
                faults.append(str(fault))
    else:
        faults += wrong_pickles(file for file in checkpoint.pickled if not is_zipfile(file))
    return Checkpoint(weights, checkpoint.pickled, checkpoint.others, faults)


def wrong_pickles(files: Iterable[Path]) -> list[str]:
    """Return a fault for each file that contains more than tensors."""
    faults = []
    for file in files:
        try:
            load_pickled(file, META, mapped=is_zipfile(file))
        except Fault as fault:
            faults.append(str(fault))
    return faults


def _read(file: Path) -> dict[str, WeightFacts]:
    content = load_pickled(file, META, mapped=True)
    if not isinstance(content, dict):
        raise Fault(f"{file}: the file must contain the weights by name, but contains a {type(content).__name__}")
    return {
        str(name): WeightFacts(NAMES.get(weight.dtype, str(weight.dtype)), tuple(weight.shape))
        for name, weight in content.items()
        if isinstance(weight, torch.Tensor)
    }


def load_pickled(file: Path, device: str = "cpu", *, mapped: bool = False) -> Any:
    """Return the contents of a PyTorch file, without running its code.

    Raise Fault if that is not possible. On the device `meta`, the weights have no data; `mapped` reads data on first
    use.
    """
    try:
        with warnings.catch_warnings(action="ignore"):  # warnings about how the file was pickled
            return torch.load(file, map_location=device, weights_only=True, mmap=mapped)
    except UnpicklingError:
        raise Fault(
            f"{file}: the file contains Python code besides weights, which is not run: get the model as safetensors"
        ) from None
    except (OSError, RuntimeError, ValueError, EOFError, KeyError) as error:
        raise Fault(f"{file}: the file cannot be read: {str(error).strip().splitlines()[0]}") from None
