"""Paged attention over the engine's cache, in a traced graph.

OpenVINO declares its paged attention for Python without names. These are its inputs:
https://github.com/openvinotoolkit/openvino/blob/master/src/core/src/op/paged_attention.cpp
"""

from collections.abc import Mapping

import numpy as np
import openvino
import torch
from openvino import opset13 as ops
from openvino.op import _PagedAttentionExtension as PagedAttention

from lmi_plugins.torch_engine.cache.kv_cache import LayerShape
from lmi_plugins.torch_engine.model.attention import AttentionOptions
from lmi_plugins.torch_engine.model.graph.tracing import ATTENTION
from lmi_plugins.torch_engine.model.graph.weights import ELEMENT_TYPES, FLOAT

BLOCK_SIZE = 32  # tokens, the only size that OpenVINO supports on CPUs
BATCH_INPUTS = ("past_lens", "subsequence_begins", "block_indices", "block_indices_begins", "max_context_len")
INT, BYTE = openvino.Type.i32, openvino.Type.u8


def cache_names(layer: int) -> tuple[str, str]:
    """Return the names of the inputs for a layer's keys and values."""
    return f"keys.{layer}", f"values.{layer}"


def add_attention(
    graph: openvino.Model,
    shapes: Mapping[int, LayerShape],
    options: Mapping[int, AttentionOptions],
    dtype: torch.dtype,
) -> None:
    """Replace each layer's attention with paged attention over caches of that type."""
    batch = {name: ops.parameter([] if name == "max_context_len" else [-1], INT, name=name) for name in BATCH_INPUTS}
    parameters = list(batch.values())
    names = {node.get_friendly_name(): node for node in graph.get_ops()}
    places = {int(name.removeprefix(ATTENTION)): node for name, node in names.items() if name.startswith(ATTENTION)}
    for layer, place in places.items():
        shape = shapes[layer]
        caches = []
        size = shape.padded.key_size
        for name in cache_names(layer):
            parameter = ops.parameter([-1, shape.heads * BLOCK_SIZE * size], ELEMENT_TYPES[dtype], name=name)
            parameters.append(parameter)
            # Without a reshape in front, OpenVINO would choose another type for the cache.
            caches.append(ops.reshape(parameter, np.array([-1, shape.heads, BLOCK_SIZE, size]), False))
        sizes = shape.key_size, shape.key_size, shape.value_size
        states = [_resized(each, old, size) for each, old in zip(place.input_values(), sizes, strict=True)]
        states += [cache.output(0) for cache in caches]
        scale, window = options[layer].scale, options[layer].window
        node = _paged_attention(states, batch, shape.key_size**-0.5 if scale is None else scale, window)
        for name in ("k", "v"):
            node.get_rt_info()[f"num_{name}_heads"] = shape.heads
            node.get_rt_info()[f"{name}_head_size"] = size
        place.output(0).replace(_resized(node.output(0), size, shape.value_size))
    for parameter in parameters:
        parameter.output(0).get_tensor().set_names({parameter.get_friendly_name()})
    graph.add_parameters(parameters)


def _resized(states: openvino.Output, old: int, new: int) -> openvino.Output:
    """Return heads of another size, [tokens, heads * new], with zeros at the ends of larger ones."""
    if old == new:
        return states
    heads = ops.reshape(states, np.array([0, -1, old]), True)
    if new > old:
        heads = ops.pad(heads, np.zeros(3, np.int32), np.array([0, 0, new - old], np.int32), "constant", np.float32(0))
    else:
        heads = ops.slice(heads, np.array([0]), np.array([new]), np.array([1]), np.array([2]))
    return ops.reshape(heads, np.array([0, -1]), True).output(0)


def _paged_attention(
    states: list[openvino.Output], batch: Mapping[str, openvino.Node], scale: float, window: int | None
) -> PagedAttention:
    """Return the node for queries, keys, values and their caches, without its other features."""
    past_lens, begins, blocks, block_begins, length = (batch[name].output(0) for name in BATCH_INPUTS)
    inputs = [*states, past_lens, begins, blocks, block_begins, _constant(FLOAT, scale), _constant(INT, window or 0)]
    inputs += [_empty(FLOAT), length, _empty(INT)]  # slopes of ALiBi, and a window of scores
    inputs += [_empty(INT), _empty(INT), _empty(FLOAT)]  # rotation of cached keys
    inputs += [_empty(FLOAT), _constant(INT, 0), _constant(INT, 0)]  # sparse attention
    inputs += [_empty(FLOAT, 4)]  # sinks
    inputs += [_constant(INT, 0), _empty(INT), _empty(INT), _empty(INT)]  # eviction
    inputs += [_empty(INT), _empty(BYTE), _empty(INT)]  # types of tokens, and a bias between queries
    return PagedAttention(inputs)


def _constant(kind: openvino.Type, value: float) -> openvino.Output:
    return ops.constant(np.array(value), kind).output(0)


def _empty(kind: openvino.Type, rank: int = 1) -> openvino.Output:
    return ops.constant(np.zeros([0] * rank), kind).output(0)
