"""The device of the torch engine: the requested one, compared with this host's. Imports no torch."""

import importlib.util
import platform
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from lmi_core.errors.fault import Fault
from lmi_core.host.devices import count_gpus, describe_gpus
from lmi_core.host.substitution import Substitution
from lmi_core.inspection.model_folder import CONFIG
from lmi_core.texts.json_files import read_json
from lmi_core.workers.placement import Placement, placement
from lmi_core.workers.replicas import ReplicaCount
from lmi_plugins.torch_engine.messages.openvino_limits import reason_for_torch
from lmi_plugins.torch_engine.messages.requests import EngineOptions

ON_CPU = "the model runs on the CPU, which is many times slower"
SHORT = {"fp16": "fp16", "float16": "fp16", "half": "fp16", "bf16": "bf16", "bfloat16": "bf16"}
LONG = {"fp32": "float32", "float": "float32", "fp16": "float16", "half": "float16", "bf16": "bfloat16"}
ACCELERATED_BUILD = re.compile(r"^(cuda|hip)\b.*=\s*'", re.MULTILINE)  # in torch's own version.py

CPU_FACTS = Path("/proc/cpuinfo")
CPU_FLAGS = {
    "fp16": {"avx512_fp16", "amx_fp16", "asimdhp", "fphp"},
    "bf16": {"avx512_bf16", "amx_bf16", "bf16", "avx_ne_convert"},
}


class Host(NamedTuple):
    """The devices of this host for the torch engine."""

    gpus: int | None  # GPUs that torch can use; None: unknown
    lacking: str  # why there are no more, in words
    mps: bool  # whether this is a Mac, whose device is `mps`

    @property
    def only_cpu(self) -> bool:
        return self.gpus == 0 and not self.mps


def this_host() -> Host:
    """Return the devices of this host."""
    gpus = count_gpus()
    mps = platform.system() == "Darwin"
    if gpus and not _is_accelerated():
        return Host(0, f"{describe_gpus(gpus)}, but the installed torch is a build for CPUs", mps)
    return Host(gpus, "" if gpus is None else describe_gpus(gpus), mps)


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


def device_placement(
    of_group: ReplicaCount, devices: tuple[str, ...], asked: str, degree: int, host: Host
) -> Placement:
    """Return the devices of the engine's replicas; each runs on the first of its own.

    `asked` is the device in the options: the first of `devices`, which the server assigns to this model, unless the
    directory names another.
    """
    gpus = host.gpus or 0
    if devices and asked == f"cuda:{devices[0]}":
        named = [each for each in devices if int(each) < gpus]
        return placement(of_group, named, 0, degree)
    return placement(of_group, (), gpus if available_device(asked, host) == "auto" else 0, degree)


def device_substitution(option: str, asked: str, host: Host) -> Iterator[Substitution]:
    """Yield the replacement of a requested device that this host lacks."""
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
            "it is used nevertheless; PyTorch takes about twice as long for long prompts as with fp32",
        )


def openvino_substitutions(options: EngineOptions, host: Host) -> Iterator[Substitution]:
    """Yield a note for each option that asks for OpenVINO although PyTorch will compute the model."""
    asked = [("option.cpu_runner", "openvino", "PyTorch computes the model")] * (options.cpu_runner == "openvino")
    if options.quantize is not None:
        asked.append(("option.quantize", options.quantize, "the weights keep their own type"))
    if not asked or (options.device == "auto" and host.gpus is None):
        return
    config = _configuration(options)
    dtype = config.get("dtype") or config.get("torch_dtype") if options.dtype == "auto" else options.dtype
    reason = reason_for_torch(
        options, runs_on_cpu(options.device, host), None if dtype is None else LONG.get(str(dtype), str(dtype)), config
    )
    if reason is not None:
        for option, value, instead in asked:
            yield Substitution(option, value, reason, instead)


def text_only(options: EngineOptions) -> Iterator[str]:
    """Yield a warning for a model that supports images on other engines."""
    if "vision_config" in _configuration(options):
        yield "the torch engine serves only the texts of this model: images need option.rolling_batch=vllm"


def _configuration(options: EngineOptions) -> dict[str, object]:
    """Return the model's configuration; nothing if it is unknown or damaged, which is reported elsewhere."""
    try:
        return read_json(Path(options.model) / CONFIG)
    except Fault:
        return {}


def computes_natively(data_type: str, facts: Path = CPU_FACTS) -> bool | None:
    """Return whether the CPU has instructions for `fp16` or `bf16`; None if unknown."""
    try:
        lines = facts.read_text().splitlines()
    except OSError:
        return None
    flags = next((line.partition(":")[2].split() for line in lines if line.startswith(("flags", "Features"))), None)
    return None if flags is None else not CPU_FLAGS[data_type].isdisjoint(flags)
