"""A model of transformers as an OpenVINO graph, traced in PyTorch, without its weights and its attention.

The graph's inputs are those of a forward pass, in the order of INPUTS, those for layers with a state (see
`state_nodes`), and then all weights, by their names. In place of each layer's attention it has a node called
`attention.LAYER` with the queries, keys and values as inputs.
"""

import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import openvino
import torch
from openvino import opset13 as ops
from openvino.frontend import FrontEndManager
from openvino.frontend.pytorch import ConversionExtension
from openvino.frontend.pytorch.ts_decoder import TorchScriptPythonDecoder
from torch.nn.functional import linear
from torch.overrides import TorchFunctionMode
from transformers import PreTrainedModel

from lmi_plugins.torch_engine.model.attention import AttentionOptions, AttentionStep, running
from lmi_plugins.torch_engine.model.graph import experts
from lmi_plugins.torch_engine.model.graph.state_nodes import TracedStates, extensions
from lmi_plugins.torch_engine.model.model_runner import UnsupportedGraph
from lmi_plugins.torch_engine.model.paged_support import takes_positions
from lmi_plugins.torch_engine.model.soft_prompt import embedding_weight
from lmi_plugins.torch_engine.model.state_layers import StateLayer

INPUTS = ("inputs_embeds", "position_ids", "logits_indices")
LAYER_INPUTS = "per_layer_inputs"  # another input, of models whose layers look up embeddings of their own
ATTENTION = "attention."
EXAMPLE_TOKENS = 3


# Only calls to these are traced, so they need not compute anything.
@torch.library.custom_op("lmi_graph::attention", mutates_args=())
def _attention(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, layer: int) -> torch.Tensor:
    return query.new_zeros(query.shape[0], query.shape[1] * value.shape[1] // key.shape[1])


@torch.library.custom_op("lmi_graph::linear", mutates_args=())
def _linear(input: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return input.new_zeros(*input.shape[:-1], weight.shape[0])


def weights_of(model: PreTrainedModel) -> dict[str, torch.Tensor]:
    """Return the model's parameters and buffers by name, each once."""
    return {**dict(model.named_parameters()), **dict(model.named_buffers())}


def layer_embeddings(model: PreTrainedModel) -> torch.nn.Module | None:
    """Return the module with the embeddings of all layers; None in most models. Gemma 3n and 4 have one."""
    found = (each for name, each in model.named_modules() if name.endswith("embed_tokens_per_layer"))
    return next(found, None)


def layer_shape(model: PreTrainedModel) -> tuple[int, int]:
    """Return the number of layers and the size of their own embeddings."""
    config: Any = model.config.get_text_config()
    return config.num_hidden_layers, config.hidden_size_per_layer_input


def trace(model: PreTrainedModel, states: TracedStates) -> openvino.Model:
    """Return the graph of a model with the attention of the paged runner. Raise any kind of exception if this fails."""
    weights = weights_of(model)
    example = (
        torch.zeros(1, EXAMPLE_TOKENS, embedding_weight(model).shape[1]),
        torch.arange(EXAMPLE_TOKENS)[None],
        torch.arange(EXAMPLE_TOKENS - 1),
        *(torch.zeros(1, EXAMPLE_TOKENS, *layer_shape(model)) for _ in _more_inputs(model)),
        *states.examples(EXAMPLE_TOKENS),
        *(_example_weight(weight) for weight in weights.values()),
    )
    frontend = FrontEndManager().load_by_framework("pytorch")
    frontend.add_extension(ConversionExtension("lmi_graph::attention", _convert_attention))
    frontend.add_extension(ConversionExtension("lmi_graph::linear", _convert_linear))
    frontend.add_extension(experts.extension())
    for extension in extensions() if states.tables else ():
        frontend.add_extension(extension)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about constants, such as the model's sizes, and about tracing itself
        traced = _Traced(model, list(weights), states)
        decoder = TorchScriptPythonDecoder(traced, example_input=example, trace_kwargs={"check_trace": False})
        graph = frontend.convert(frontend.load(decoder))
    names = [*INPUTS, *_more_inputs(model), *states.shapes, *weights]
    for parameter, name in zip(graph.get_parameters(), names, strict=True):
        parameter.set_friendly_name(name)
        parameter.output(0).get_tensor().set_names({name})
    if states.used != states.tables.keys():
        raise UnsupportedGraph("some of its layers use their states in an unknown way")
    return graph


def _more_inputs(model: PreTrainedModel) -> tuple[str, ...]:
    return () if layer_embeddings(model) is None else (LAYER_INPUTS,)


class _Traced(torch.nn.Module):
    """A forward pass as a function of the inputs and weights."""

    def __init__(self, model: PreTrainedModel, names: list[str], states: TracedStates) -> None:
        super().__init__()
        self.__dict__["_model"] = model  # not a submodule, whose weights would be traced as constants
        self._names, self._states = names, states

    def forward(
        self,
        inputs_embeds: torch.Tensor,
        position_ids: torch.Tensor,
        logits_indices: torch.Tensor,
        *others: torch.Tensor,
    ) -> tuple[torch.Tensor, ...]:
        model: Any = self.__dict__["_model"]
        more = _more_inputs(model)
        inputs = dict(zip((*more, *self._states.shapes, *self._names), others, strict=True))
        self._states.begin(inputs)
        weights_by_name = {name: inputs[name] for name in self._names}
        with (
            _replaced(model, weights_by_name),
            _TracedLinears(),
            experts.traced_experts(model),
            running(_TracedStep(self._states)),
        ):
            output = model(
                inputs_embeds=inputs_embeds,
                logits_to_keep=logits_indices,
                use_cache=False,
                **({"position_ids": position_ids} if takes_positions(model) else {}),
                **{name: inputs[name] for name in more},
            )
        return output.logits[0], *self._states.outputs


class _TracedStep(AttentionStep):
    def __init__(self, states: TracedStates) -> None:
        self._states = states

    def attend(
        self, layer: int, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, options: AttentionOptions
    ) -> torch.Tensor:
        rows = [states[0].transpose(0, 1).flatten(1) for states in (query, key, value)]
        output: torch.Tensor = _attention(*rows, layer)
        return output.view(1, query.shape[2], query.shape[1], value.shape[3])

    def mix(self, layer: StateLayer, hidden: torch.Tensor) -> torch.Tensor:
        return self._states.mix(layer, hidden)


class _TracedLinears(TorchFunctionMode):
    """Linear products are not computed while they are traced, which would take most of the time."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is not linear or kwargs:
            return func(*args, **(kwargs or {}))
        input, weight, *bias = args
        output = _linear(input, weight)
        return output if not bias or bias[0] is None else output + bias[0]


def _example_weight(weight: torch.Tensor) -> torch.Tensor:
    """Return a tensor of this shape without memory; operations on it are in float32."""
    if not weight.is_floating_point():
        return weight
    return torch.zeros(()).expand(weight.shape)


@contextmanager
def _replaced(model: torch.nn.Module, weights: Mapping[str, torch.Tensor]) -> Iterator[None]:
    """Temporarily replace the model's weights, including those that modules share.

    They are plain tensors, which `setattr` refuses for parameters. torch.func.functional_call does the same internally:
    https://github.com/pytorch/pytorch/blob/main/torch/nn/utils/_named_member_accessor.py
    """
    by_id = {id(weight): weights[name] for name, weight in weights_of(model).items()}  # type: ignore[arg-type]
    places = [
        (tensors, name, tensor)
        for module in model.modules()
        for tensors in (module._parameters, module._buffers)
        for name, tensor in tensors.items()
        if tensor is not None
    ]
    try:
        for tensors, name, tensor in places:
            tensors[name] = by_id[id(tensor)]  # type: ignore[assignment]
        yield
    finally:
        for tensors, name, tensor in places:
            tensors[name] = tensor  # type: ignore[assignment]


def _convert_attention(context: Any) -> list[Any]:
    # Any operation with these inputs would do.
    node = ops.concat([context.get_input(index) for index in range(3)], 1)
    node.set_friendly_name(f"{ATTENTION}{context.get_values_from_const_input(3)}")
    return list(node.outputs())


def _convert_linear(context: Any) -> list[Any]:
    return list(ops.matmul(context.get_input(0), context.get_input(1), False, True).outputs())
