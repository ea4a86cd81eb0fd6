"""The weights of a checkpoint, as the headers of its files describe them."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from lmi_core.inspection.fault import Fault
from lmi_core.inspection.json_files import read_json
from lmi_core.inspection.safetensors_header import WeightFacts, read_header

INDEX = "model.safetensors.index.json"
SINGLE = "model.safetensors"
OTHER_FORMATS = ("pytorch_model.bin", "pytorch_model.bin.index.json", "*.gguf", "*.pth", "consolidated*.safetensors")


@dataclass(slots=True)
class Checkpoint:
    """The weights of a folder by name, and what is wrong with its files."""

    weights: dict[str, WeightFacts] = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)

    @property
    def is_known(self) -> bool:
        """Whether `weights` are all that there are."""
        return bool(self.weights) and not self.faults


def read_checkpoint(folder: Path) -> Checkpoint:
    """Read the headers of a folder's safetensors files; of weights in other formats nothing is known."""
    checkpoint = Checkpoint()
    if (folder / INDEX).exists():
        _read_shards(folder, checkpoint)
    elif (folder / SINGLE).exists():
        _read(folder / SINGLE, checkpoint)
    elif not any(next(folder.glob(pattern), None) for pattern in OTHER_FORMATS):
        checkpoint.faults.append(f"{folder}: no weights: neither {SINGLE} nor {INDEX} nor weights in another format")
    return checkpoint


def _read_shards(folder: Path, checkpoint: Checkpoint) -> None:
    index = folder / INDEX
    try:
        places = read_json(index).get("weight_map")
    except Fault as fault:
        checkpoint.faults.append(str(fault))
        return
    if not isinstance(places, dict) or not all(isinstance(place, str) for place in places.values()):
        checkpoint.faults.append(f"{index}: `weight_map` must contain the file of each weight")
        return
    shards = sorted(set(places.values()))
    if missing := [shard for shard in shards if not (folder / shard).exists()]:
        checkpoint.faults.append(f"{folder}: {len(missing)} of {len(shards)} shards missing: {listed(missing)}")
    for shard in shards:
        if shard not in missing:
            _read(folder / shard, checkpoint)
    if checkpoint.is_known and (lost := sorted(places.keys() - checkpoint.weights.keys())):
        checkpoint.faults.append(f"{index}: weights that no shard has: {listed(lost)}")


def _read(file: Path, checkpoint: Checkpoint) -> None:
    try:
        checkpoint.weights |= read_header(file)
    except Fault as fault:
        checkpoint.faults.append(str(fault))


def listed(names: Iterable[str], shown: int = 3) -> str:
    """Return the first few names, and how many more there are."""
    names = sorted(names)
    more = f" and {len(names) - shown} more" if len(names) > shown else ""
    return ", ".join(names[:shown]) + more
