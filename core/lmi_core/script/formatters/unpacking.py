"""How many names a caller unpacks a result into.

LMI's `Sequence.get_next_token` gave tuples of four in one version and of three in the next, and model.py files are
written for either, with nothing in them that says which. So the instruction after the call is read, as `dis` has it:
https://docs.python.org/3/library/dis.html#opcode-UNPACK_SEQUENCE
"""

import dis
from functools import lru_cache
from types import CodeType, FrameType


def unpacks_four(caller: FrameType) -> bool:
    """Return whether the frame, which is in a call, assigns the call's result to four names."""
    return _unpacks_four(caller.f_code, caller.f_lasti)


@lru_cache(maxsize=1024)
def _unpacks_four(code: CodeType, call: int) -> bool:
    following = (each for each in dis.get_instructions(code) if each.offset > call and each.opname != "CACHE")
    instruction = next(following, None)
    return instruction is not None and instruction.opname == "UNPACK_SEQUENCE" and instruction.arg == 4
