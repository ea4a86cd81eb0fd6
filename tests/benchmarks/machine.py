"""A description of the benchmarks' machine and its software."""

import os
import platform
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
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


def module(name: str, python: str) -> str:
    """Return a module's name and its version in another interpreter, in words."""
    code = f"from importlib.metadata import *; print(version(packages_distributions()[{name!r}][0]))"
    return f"{name} {subprocess.check_output([python, '-c', code], text=True).strip()}"


def description(vllm_python: str | None = sys.executable if find_spec("vllm") else None) -> str:
    memory = psutil.virtual_memory().total / 2**30
    vllm = () if vllm_python is None else (module("vllm", vllm_python),)  # None where it is not measured
    packages = ", ".join((*map(package, ("torch", "transformers")), *vllm))
    return (
        f"{processor()}, {len(os.sched_getaffinity(0))} cores, {memory:.0f} GiB of memory; {platform.system()},"
        f" Python {platform.python_version()}, {packages}"
    )


def load() -> float:
    """Return the average number of runnable processes in the last minute."""
    return float(Path("/proc/loadavg").read_text().split()[0])


def own_memory() -> int:
    """Return the bytes of this process's memory that are not those of files, which the system can reclaim."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("RssAnon:"))
