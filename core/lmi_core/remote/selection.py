"""Selection of files that need not be downloaded because no backend reads them."""

from collections.abc import Iterable
from fnmatch import fnmatchcase
from pathlib import PurePosixPath

# Copies of the weights in formats that are not read beside safetensors. Their writers give them these
# names; anything else may be what a model's own code wants.
OTHER_FORMATS = (
    "pytorch_model*.bin",
    "pytorch_model*.bin.index.json",
    "consolidated.*.pth",
    "tf_model*.h5",
    "tf_model*.h5.index.json",
    "flax_model*.msgpack",
    "flax_model*.msgpack.index.json",
    "rust_model.ot",
    "*.onnx",
    "*.onnx_data",
    "*.gguf",
)
OTHER_FOLDERS = ("original", "onnx", "openvino", "coreml", "metal")  # as in model repositories on the hub
SAFETENSORS = ".safetensors"
WEIGHTS = (*OTHER_FORMATS, "*.safetensors", "*.safetensors.index.json", "*.bin", "*.pt", "*.pth", "*.h5")


def useless(paths: Iterable[str]) -> set[str]:
    """Return the paths, relative to the model's folder, of weights that also exist as safetensors."""
    known = [PurePosixPath(path) for path in paths]
    beside = {path.parent for path in known if path.suffix == SAFETENSORS}
    model = PurePosixPath() in beside and PurePosixPath("config.json") in known
    return {str(path) for path in known if _repeats(path, beside, model)}


def weights(paths: Iterable[str]) -> set[str]:
    """Return the paths of weights in any format, and of their indexes."""
    return {path for path in paths if any(fnmatchcase(path.rpartition("/")[2], pattern) for pattern in WEIGHTS)}


def _repeats(path: PurePosixPath, beside: set[PurePosixPath], model: bool) -> bool:
    if model and len(path.parts) > 1 and path.parts[0] in OTHER_FOLDERS:
        return True
    return path.parent in beside and any(fnmatchcase(path.name, pattern) for pattern in OTHER_FORMATS)
