"""Weights in pickled files, which can contain arbitrary code.

PyTorch tries to read them without running the code, but may not know every trick. So they are read only with the
operator's permission, and never because another file names them.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path

OPTION = "option.allow_pickle"
SUFFIXES = (".bin", ".pt", ".pth")
ADAPTER = "adapter_model.safetensors"
PICKLED_ADAPTERS = ("adapter_model.bin", "adapter_model.pt")


def refusal(files: Sequence[Path], allowed: bool) -> str | None:
    """Return why pickled files are not read; None if there are none, or if the operator allows them."""
    files = [*dict.fromkeys(files)]
    if allowed or not files:
        return None
    more = f" and {len(files) - 1} more files" if len(files) > 1 else ""
    is_pickle = "are pickles" if more else "is a pickle"
    return (
        f"{files[0]}{more} {is_pickle}, which may contain code: get the weights as safetensors, or set {OPTION}=true "
        "if you trust their source"
    )


def pickled_adapter(folder: Path) -> list[Path]:
    """Return an adapter's pickled weights file, if any; engines read it if there are no safetensors."""
    if (folder / ADAPTER).is_file():
        return []
    return [file for name in PICKLED_ADAPTERS if (file := folder / name).exists()]


def pickled_weights(folder: Path) -> list[Path]:
    """Return the pickled files of a folder without safetensors; vLLM reads them under any name."""
    if any(True for _ in folder.glob("*.safetensors")):
        return []
    return sorted(file for file in folder.iterdir() if file.suffix in SUFFIXES)


def refusal_faults(files: Iterable[Path], allowed: bool) -> list[str]:
    """Return `refusal` as a list of faults."""
    found = refusal([*files], allowed)
    return [] if found is None else [found]
