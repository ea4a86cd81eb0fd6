"""oneDNN's linear products on the CPU, through the operators that torch.compile calls.

torch has no public function that packs a weight for them and no public test for bfloat16. The operators are declared in
https://github.com/pytorch/pytorch/blob/main/aten/src/ATen/native/mkldnn/RegisterMkldnnOpContextClass.cpp
"""

from collections.abc import Callable
from functools import partial

import torch


def multiplies(dtype: torch.dtype) -> bool:
    """Return whether this build of torch and this CPU support products of that type."""
    available: bool = torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]
    if not available:
        return False
    return dtype == torch.float32 or (dtype == torch.bfloat16 and bool(torch.ops.mkldnn._is_mkldnn_bf16_supported()))


def pack(weight: torch.Tensor, bias: torch.Tensor | None, rows: int) -> Callable[[torch.Tensor], torch.Tensor]:
    """Return `torch.nn.functional.linear` for this weight, [out, in], and bias.

    The weight gets the fastest layout for inputs with that number of rows.
    """
    packed = torch.ops.mkldnn._reorder_linear_weight(weight, rows)
    multiply = torch.ops.mkldnn._linear_pointwise
    return partial(multiply, W=packed, B=bias, attr="none", scalars=[], algorithm="")
