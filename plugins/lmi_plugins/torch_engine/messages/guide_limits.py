"""Limits on the cost of guides."""

import msgspec

MIB = 2**20


class GuideLimits(msgspec.Struct, array_like=True, frozen=True):
    """The limits of one guide; requests that exceed them are refused or ended."""

    size: int = MIB  # bytes of text
    compile_seconds: int = 20  # of CPU time
    memory: int = 512 * MIB  # bytes, during compilation
    mask_seconds: float = 0.05  # of CPU time, to compute the next allowed tokens of one sequence
