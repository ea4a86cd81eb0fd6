"""The weights of a traced graph: the model's own memory, or quantized numbers made from it."""

import logging
import os
import tempfile
from collections.abc import Mapping

import numpy as np
import openvino
import torch
from openvino import opset13 as ops

from lmi_core.configuration.cache import cache_folder
from lmi_core.host.memory import return_free_memory
from lmi_plugins.torch_engine.messages.requests import Quantization

logger = logging.getLogger(__name__)

FLOAT = openvino.Type.f32
GROUP = 128  # 4-bit weights that share a scale
GROUPS = 1 << 16  # quantized at a time, because each number needs several bytes meanwhile
ELEMENT_TYPES = {torch.float32: FLOAT, torch.bfloat16: openvino.Type.bf16, torch.float16: openvino.Type.f16}


def as_tensor(states: torch.Tensor) -> openvino.Tensor:
    """Return an OpenVINO tensor over the same memory, which the caller must keep alive."""
    if states.dtype != torch.bfloat16:
        return openvino.Tensor(states.numpy(), shared_memory=True)
    bits = states.view(torch.int16).numpy()
    return openvino.Tensor(bits, openvino.Shape(list(states.shape)), openvino.Type.bf16)


def add_weights(
    graph: openvino.Model,
    weights: Mapping[str, torch.Tensor],
    quantize: Quantization | None,
    output: torch.Tensor | None,
) -> object:
    """Replace the graph's inputs by the weights; return the owner of memory that the graph uses.

    `output` is the weight that makes logits, which has at least 8 bits.
    """
    parameters = {name: each for each in graph.get_parameters() if (name := each.get_friendly_name()) in weights}
    bits = {
        name: 4 if quantize == "int4" and weights[name].shape[-1] % GROUP == 0 and weights[name] is not output else 8
        for name, each in parameters.items()
        if quantize is not None and _is_multiplied(each)
    }
    size = sum(weights[name].numel() * each // 8 for name, each in bits.items())
    memory = _disk_memory(size) if size else torch.empty(0)
    used = 0
    for name, parameter in parameters.items():
        weight = weights[name].detach()
        if name in bits:
            size = weight.numel() * bits[name] // 8
            node = _quantize(weight, bits[name], memory[used : used + size])
            used += size
        else:
            node = _constant(weight)
        parameter.output(0).replace(node.output(0))
        graph.remove_parameter(parameter)
    return_free_memory()  # used to compute the numbers
    return memory


def _is_multiplied(parameter: openvino.Node) -> bool:
    """Return whether a weight, [..., out, in], is used by linear products only."""
    targets = [(each.get_node(), each.get_index()) for each in parameter.output(0).get_target_inputs()]
    return bool(targets) and all(
        index == 1
        and (
            (node.get_type_name() == "MatMul" and node.get_attributes()["transpose_b"])
            or node.get_type_name() == "GroupedMatMul"
        )
        for node, index in targets
    )


def _constant(weight: torch.Tensor) -> openvino.Node:
    constant = openvino.op.Constant(as_tensor(weight.contiguous()), shared_memory=weight.is_contiguous())
    if weight.dtype == torch.float32:
        return constant
    node = ops.convert(constant, FLOAT)
    node.get_rt_info()["decompression_0"] = ""  # keeps OpenVINO from converting it at the start, which doubles its size
    return node


def _quantize(weight: torch.Tensor, bits: int, memory: torch.Tensor) -> openvino.Node:
    """Return the weight, [..., out, in], as numbers with this many bits, written into `memory`, and their scales.

    Numbers of 8 bits have a scale for each row, those of 4 bits one for each group in a row.
    """
    size = weight.shape[-1] if bits == 8 else GROUP
    shape = list(weight.shape) if bits == 8 else [*weight.shape[:-1], weight.shape[-1] // GROUP, GROUP]
    scales = [
        _write_numbers(groups, bits, numbers)
        for groups, numbers in zip(
            torch.split(weight.reshape(-1, size), GROUPS), torch.split(memory, GROUPS * size * bits // 8), strict=True
        )
    ]
    kind = openvino.Type.i8 if bits == 8 else openvino.Type.i4
    constant = openvino.op.Constant(openvino.Tensor(memory.numpy(), openvino.Shape(shape), kind), shared_memory=True)
    by_group = torch.cat(scales).reshape([*shape[:-1], 1])
    node = ops.multiply(ops.convert(constant, FLOAT), ops.constant(by_group.numpy()))
    return node if bits == 8 else ops.reshape(node, np.array(weight.shape), False)


def _write_numbers(groups: torch.Tensor, bits: int, memory: torch.Tensor) -> torch.Tensor:
    """Write groups of weights, [groups, weights], as numbers; return their scales, [groups, 1]."""
    lowest = -(1 << bits - 1)
    scales = groups.gather(-1, groups.abs().argmax(-1, keepdim=True)).float() / lowest
    scales[scales == 0] = 1
    numbers = (groups / scales).round_().clamp_(lowest, -lowest - 1).to(torch.int8).view(-1)
    if bits == 4:
        numbers = (numbers[::2] & 15) | (numbers[1::2] << 4)
    memory.copy_(numbers)
    return scales


def _disk_memory(size: int) -> torch.Tensor:
    """Return bytes in a file without a name, which the system can write back instead of keeping them in memory.

    OpenVINO makes a copy in the layout that its products read fastest, and rarely reads these again.
    """
    folder = cache_folder(os.environ)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder) as file:
            # So that a full disk raises an error here instead of a signal later
            os.posix_fallocate(file.fileno(), 0, size)
            return torch.from_numpy(np.memmap(file, np.int8, "r+", shape=(size,)))
    except (OSError, AttributeError) as error:  # not available on macOS
        logger.info("Quantized weights are kept in memory, because %s has no room for them: %s", folder, error)
        return torch.empty(size, dtype=torch.int8)
