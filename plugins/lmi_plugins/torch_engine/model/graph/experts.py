"""Mixtures of experts in a traced graph: products of each token with the weights of its experts.

The gate between two products is a private method of each class, which transformers' own functions for experts call too:
https://github.com/huggingface/transformers/blob/v5.0.0/src/transformers/integrations/moe.py
"""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import openvino
import torch
from openvino import opset13 as ops
from openvino.frontend.pytorch import ConversionExtension
from openvino.opset17 import grouped_matmul

ATTRIBUTES = ("has_gate", "has_bias", "is_transposed", "num_experts")  # of all modules of experts in transformers


# Only calls to it are traced, so it need not compute anything.
@torch.library.custom_op("lmi_graph::grouped_linear", mutates_args=())
def _grouped_linear(input: torch.Tensor, weight: torch.Tensor, ends: torch.Tensor) -> torch.Tensor:
    return input.new_zeros(input.shape[0], weight.shape[1])


@contextmanager
def traced_experts(model: torch.nn.Module) -> Iterator[None]:
    """Temporarily replace the forward pass of modules with experts by a traced one."""
    modules: list[Any] = [
        module
        for module in model.modules()
        if all(hasattr(module, name) for name in ATTRIBUTES) and not module.is_transposed
    ]
    try:
        for module in modules:
            module.forward = partial(_run, module)
        yield
    finally:
        for module in modules:
            del module.forward


def _run(module: Any, hidden: torch.Tensor, experts: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    """Return the output, [tokens, hidden], given the experts of each token, and their weights, [tokens, chosen]."""
    chosen = experts.flatten()
    order = chosen.argsort()  # tokens of the same expert in a row
    ends = (chosen[None] <= torch.arange(module.num_experts)[:, None]).sum(1)
    by_expert = chosen[order]

    def multiply(states: torch.Tensor, name: str) -> torch.Tensor:
        output: torch.Tensor = _grouped_linear(states, getattr(module, name), ends)
        return output + getattr(module, f"{name}_bias")[by_expert] if module.has_bias else output

    states = multiply(hidden[order // experts.shape[1]], "gate_up_proj" if module.has_gate else "up_proj")
    states = module._apply_gate(states) if module.has_gate else module.act_fn(states)
    states = multiply(states, "down_proj")[order.argsort()]
    return (states.view(*experts.shape, -1) * weights[..., None]).sum(1)


def extension() -> ConversionExtension:
    """Return the conversion of the traced products."""
    return ConversionExtension("lmi_graph::grouped_linear", _convert)


def _convert(context: Any) -> list[Any]:
    input, weight, ends = (context.get_input(index) for index in range(3))
    return list(grouped_matmul(input, weight, ops.convert(ends, openvino.Type.i32)).outputs())
