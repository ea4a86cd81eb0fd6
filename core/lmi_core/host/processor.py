"""The number formats of this host's CPU."""

from pathlib import Path

FACTS = Path("/proc/cpuinfo")
NATIVE = {
    "fp16": {"avx512_fp16", "amx_fp16", "asimdhp", "fphp"},
    "bf16": {"avx512_bf16", "amx_bf16", "bf16", "avx_ne_convert"},
}


def computes_natively(data_type: str, facts: Path = FACTS) -> bool | None:
    """Return whether the CPU has instructions for `fp16` or `bf16`; None if unknown."""
    try:
        lines = facts.read_text().splitlines()
    except OSError:
        return None
    flags = next((line.partition(":")[2].split() for line in lines if line.startswith(("flags", "Features"))), None)
    return None if flags is None else not NATIVE[data_type].isdisjoint(flags)
