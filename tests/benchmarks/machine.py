"""What the benchmarks ran on."""

import os
import platform
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import psutil


def processor() -> str:
    with open("/proc/cpuinfo") as lines:
        return next((line.split(":")[1].strip() for line in lines if line.startswith("model name")), platform.machine())


def package(name: str) -> str:
    try:
        return f"{name} {version(name)}"
    except PackageNotFoundError:
        return f"{name} not installed"


def description() -> str:
    memory = psutil.virtual_memory().total / 2**30
    packages = ", ".join(map(package, ("torch", "transformers", "vllm")))
    return (
        f"{processor()}, {len(os.sched_getaffinity(0))} cores, {memory:.0f} GiB of memory; {platform.system()},"
        f" Python {platform.python_version()}, {packages}"
    )


def load() -> float:
    """How many processes wanted to run in the last minute, on average."""
    return float(Path("/proc/loadavg").read_text().split()[0])
