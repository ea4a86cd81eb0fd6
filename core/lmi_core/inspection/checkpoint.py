"""The weights of a checkpoint, as the headers of its files describe them."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from lmi_core.errors.fault import Fault
from lmi_core.inspection.layers import is_outside
from lmi_core.inspection.safetensors_header import WeightFacts, read_header
from lmi_core.texts.json_files import read_json

INDEX = "model.safetensors.index.json"
SINGLE = "model.safetensors"
PICKLED_INDEX = "pytorch_model.bin.index.json"
PICKLED = "pytorch_model.bin"
SAFE = ".safetensors"
SAFE_INDEX = f"{SAFE}.index.json"
OUTSIDE = "must be a file in the model's own folder"
OTHER_WEIGHTS = ("*.gguf", "*.pth", "*.pt", "*.bin", "*.safetensors")
ENGINES = ("*.engine", "*.plan")  # built by TensorRT for one type of GPU


@dataclass(slots=True)
class Checkpoint:
    """The weights in a folder by name, and the faults of its files."""

    weights: dict[str, WeightFacts] = field(default_factory=dict)
    pickled: list[Path] = field(default_factory=list)  # files in PyTorch's own format, whose weights are not listed
    others: list[str] = field(default_factory=list)  # names of other weight files, if there are no usual ones
    faults: list[str] = field(default_factory=list)

    @property
    def is_known(self) -> bool:
        """Whether `weights` is complete."""
        return bool(self.weights) and not self.faults


def configured_weights(folder: Path) -> str | None:
    """Return the weights file or index that config.json names for transformers."""
    try:
        named = read_json(folder / "config.json").get("transformers_weights")
    except Fault:
        return None
    return named if isinstance(named, str) else None


def read_checkpoint(folder: Path, named: str | None = None) -> Checkpoint:
    """Read the headers of a folder's weights: safetensors files or, without any, pickled PyTorch files.

    `named` is a file or index to read instead of those with the usual names.
    """
    checkpoint = Checkpoint()
    if named is not None:
        _read_named(folder, named, checkpoint)
    elif (folder / SINGLE).exists():  # engines also look for it first
        _read([folder / SINGLE], checkpoint)
    elif (folder / INDEX).exists():
        _read(_shards(folder / INDEX, checkpoint), checkpoint)
    elif (folder / PICKLED).exists():
        checkpoint.pickled.append(folder / PICKLED)
    elif (folder / PICKLED_INDEX).exists():
        checkpoint.pickled += _shards(folder / PICKLED_INDEX, checkpoint)
    else:
        checkpoint.others += sorted({file.name for pattern in OTHER_WEIGHTS for file in folder.glob(pattern)})
    if not (checkpoint.weights or checkpoint.pickled or checkpoint.others or checkpoint.faults):
        checkpoint.faults.append(f"{folder}: {_without_weights(folder)}")
    return checkpoint


def _read_named(folder: Path, named: str, checkpoint: Checkpoint) -> None:
    if is_outside(named):
        checkpoint.faults.append(f"{folder / 'config.json'}: `transformers_weights` {OUTSIDE}. Given: {named}")
    elif named.endswith(".json"):
        _read(_shards(folder / named, checkpoint), checkpoint)
    elif named.endswith(SAFE):
        _read([folder / named], checkpoint)
    else:
        checkpoint.pickled.append(folder / named)


def _shards(index: Path, checkpoint: Checkpoint) -> list[Path]:
    """Return the existing files of an index; missing ones are a fault."""
    try:
        places = read_json(index).get("weight_map")
    except Fault as fault:
        checkpoint.faults.append(str(fault))
        return []
    if not isinstance(places, dict) or not all(isinstance(place, str) for place in places.values()):
        checkpoint.faults.append(f"{index}: `weight_map` must contain the file of each weight")
        return []
    shards = sorted(set(places.values()))
    if outside := [shard for shard in shards if is_outside(shard)]:
        checkpoint.faults.append(f"{index}: a shard {OUTSIDE}. Given: {abridge(outside)}")
        return []
    if index.name.endswith(SAFE_INDEX) and (others := [shard for shard in shards if not shard.endswith(SAFE)]):
        checkpoint.faults.append(f"{index}: a shard must be a {SAFE} file. Given: {abridge(others)}")
        return []
    if missing := [shard for shard in shards if not (index.parent / shard).exists()]:
        checkpoint.faults.append(f"{index.parent}: {len(missing)} of {len(shards)} shards missing: {abridge(missing)}")
    return [index.parent / shard for shard in shards if shard not in missing]


def _read(files: Iterable[Path], checkpoint: Checkpoint) -> None:
    for file in files:
        try:
            checkpoint.weights |= read_header(file)
        except Fault as fault:
            checkpoint.faults.append(str(fault))


def _without_weights(folder: Path) -> str:
    engines = sorted({file.name for pattern in ENGINES for file in folder.rglob(pattern)})
    if engines:
        return (
            f"TensorRT engines ({abridge(engines)}) run only in NVIDIA's own runtime: set option.model_id to the model "
            "that they were built from"
        )
    if (folder / SINGLE).exists() or (folder / INDEX).exists():
        return "no weights: the files for them contain none"
    return f"no weights: neither {SINGLE} nor {INDEX} nor weights in another format"


def abridge(names: Iterable[str], shown: int = 3) -> str:
    """Return the first few names and the number of others, as text."""
    names = sorted(names)
    more = f" and {len(names) - shown} more" if len(names) > shown else ""
    return ", ".join(names[:shown]) + more
