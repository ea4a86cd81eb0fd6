"""The device of the torch engine: the requested one, compared with this host's. Imports no torch."""

import importlib.util
import platform
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from lmi_core.host.devices import counted_gpus, in_words
from lmi_core.host.processor import computes_natively
from lmi_core.host.substitution import Substitution

ON_CPU = "the model runs on the CPU, which is many times slower"
SHORT = {"fp16": "fp16", "float16": "fp16", "half": "fp16", "bf16": "bf16", "bfloat16": "bf16"}
ACCELERATED_BUILD = re.compile(r"^(cuda|hip)\b.*=\s*'", re.MULTILINE)  # in torch's own version.py


class Host(NamedTuple):
    """The devices of this host for the torch engine."""

    gpus: int | None  # that torch can use; None: unknown
    lacking: str  # in words, why there are no more
    mps: bool  # whether it is a Mac, whose own device that is

    @property
    def only_cpu(self) -> bool:
        return self.gpus == 0 and not self.mps


def this_host() -> Host:
    """Return the devices of this host."""
    gpus = counted_gpus()
    mps = platform.system() == "Darwin"
    if gpus and not _is_accelerated():
        return Host(0, f"{in_words(gpus)}, but the installed torch is a build for CPUs", mps)
    return Host(gpus, "" if gpus is None else in_words(gpus), mps)


def _is_accelerated() -> bool:
    """Return whether the installed torch is a build for GPUs; True if unknown."""
    found = importlib.util.find_spec("torch")
    for folder in (found.submodule_search_locations or ()) if found is not None else ():
        version = Path(folder) / "version.py"
        if version.is_file():
            return ACCELERATED_BUILD.search(version.read_text()) is not None
    return True


def available_device(asked: str, host: Host) -> str:
    """Return the requested device, or the nearest one on this host."""
    kind, _, index = asked.partition(":")
    if kind == "mps":
        return asked if host.mps else "auto"
    if kind != "cuda" or host.gpus is None:
        return asked
    if host.gpus == 0:
        return "auto"
    return "cuda:0" if index and int(index) >= host.gpus else asked


def runs_on_cpu(device: str, host: Host) -> bool:
    """Return whether the engine will choose the CPU for a device, as far as known."""
    return device == "cpu" or (device == "auto" and host.only_cpu)


def device_substitution(option: str, asked: str, host: Host) -> Iterator[Substitution]:
    """Yield the substitution of a requested device that this host lacks."""
    used = available_device(asked, host)
    if used == asked:
        return
    lacking = "only a Mac has this device" if asked == "mps" else host.lacking
    instead = ON_CPU if host.only_cpu else "the model runs on the GPU" if host.gpus else "the model runs on mps"
    yield Substitution(option, asked, lacking, f"the model runs on {used}" if used != "auto" else instead)


def degree_substitutions(degrees: dict[str, object], host: Host) -> Iterator[Substitution]:
    """Yield a substitution for each parallel degree above 1 on a host without GPUs."""
    for name, degree in degrees.items():
        if isinstance(degree, int) and degree > 1 and host.gpus == 0:
            yield Substitution(f"option.{name}", str(degree), host.lacking, ON_CPU)


def dtype_substitution(dtype: str, device: str, host: Host) -> Iterator[Substitution]:
    """Yield a note about a data type without CPU instructions, which the engine uses anyway."""
    short = SHORT.get(dtype)
    if short is not None and runs_on_cpu(device, host) and computes_natively(short) is False:
        yield Substitution(
            "option.dtype",
            dtype,
            f"this host's CPU has no instructions for {short}",
            "it is computed all the same, and long prompts take about twice as long as with fp32",
        )
