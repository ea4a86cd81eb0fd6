"""Selection of the files to download: those that backends read."""

import re
from collections.abc import Collection, Iterable
from fnmatch import fnmatchcase
from pathlib import PurePosixPath

from lmi_core.configuration.location import GGUF, RemoteModel
from lmi_core.errors import ConfigurationError

# Copies of the weights in formats that are ignored if there are safetensors files. Their tools use these names; any
# other file may be needed by a model's own code.
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
TORCH_WEIGHTS = re.compile(r"[^/]+\.safetensors|pytorch_model[^/]*\.bin")
GGUF_KINDS = ("Q4_K_M", "Q8_0")  # the ones that llama.cpp looks for, in this order
NO_MODEL = re.compile(r"(mmproj|imatrix)[^/]*$", re.I)  # GGUF files beside a model: image encoders and statistics
PART = re.compile(r"-\d{5}-of-\d{5}\.gguf$", re.I)
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


def gguf_file(model: RemoteModel, paths: Collection[str]) -> str | None:
    """Return the GGUF file of a hub model, chosen as llama.cpp does; None if other weights should be used.

    Raise ConfigurationError if it is not clear which file is meant, or the model is in several files.
    """
    files = sorted(path for path in paths if path.lower().endswith(GGUF) and not NO_MODEL.search(path))
    if not model.quantization and (not files or any(TORCH_WEIGHTS.fullmatch(path) for path in paths)):
        return None
    for kind in [model.quantization] if model.quantization else GGUF_KINDS:
        whole_name = re.compile(rf"(?<![a-z0-9]){re.escape(kind)}(?![a-z0-9_])", re.I)
        if found := [path for path in files if whole_name.search(path)]:
            break
    else:
        found = [] if model.quantization else files
    if found and all(PART.search(path) for path in found):
        raise ConfigurationError(f"{model}: a GGUF model in several files is not supported: {', '.join(found)}")
    if len(found) != 1:
        raise ConfigurationError(
            f"{model}: name one of its GGUF files as {model.repository}:QUANTIZATION, or :FILE. There are: "
            f"{', '.join(found or files) or 'none'}"
        )
    return found[0]


def _repeats(path: PurePosixPath, beside: set[PurePosixPath], model: bool) -> bool:
    if model and len(path.parts) > 1 and path.parts[0] in OTHER_FOLDERS:
        return True
    return path.parent in beside and any(fnmatchcase(path.name, pattern) for pattern in OTHER_FORMATS)
