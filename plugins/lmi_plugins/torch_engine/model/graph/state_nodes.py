"""Convolutions and recurrences of layers with a state, in a traced graph.

OpenVINO computes them for packed sequences. A table holds a state in each row; a sequence's state is read from one row
and written to another. The library for CPUs has these operations, which OpenVINO does not declare for Python:
https://github.com/openvinotoolkit/openvino/blob/master/src/core/dev_api/openvino/op/paged_causal_conv1d.hpp
https://github.com/openvinotoolkit/openvino/blob/master/src/core/dev_api/openvino/op/gated_delta_net.hpp
https://github.com/openvinotoolkit/openvino/blob/master/src/core/dev_api/openvino/op/paged_selective_ssm.hpp

Its delta rule for packed sequences takes three to four times as long as PyTorch, which computes single tokens instead.
"""

import re
from collections.abc import Callable, Mapping
from collections.abc import Sequence as Items
from functools import partial
from pathlib import Path
from typing import Any

import openvino
import torch
from openvino import opset13 as ops
from openvino.frontend.pytorch import ConversionExtension
from openvino.utils.node_factory import NodeFactory
from torch.nn.functional import silu, softplus
from transformers import Cache
from transformers.activations import ACT2FN

from lmi_plugins.torch_engine.model.model_runner import UnsupportedGraph
from lmi_plugins.torch_engine.model.recurrences import delta_rule_inputs
from lmi_plugins.torch_engine.model.state_layers import StateLayer

# Inputs that describe packed sequences: the first token of each and the end of the last, the rows of each (that of its
# state and that of its next state), the first of these rows and the end of the last, the number of earlier tokens, and
# the number of tokens between written states.
PACKED = ("state_begins", "state_rows", "state_rows_begins", "state_past", "state_interval")
# Inputs for the delta rule: the tokens of short sequences, which PyTorch computes; those of long ones, [sequences,
# tokens], padded with their first tokens; 1 or else 0 for padding; the rows of their states; and where each token is in
# the outputs of both.
DELTA = ("short_tokens", "long_tokens", "long_mask", "long_rows", "token_places")
OPERATIONS = {  # OpenVINO's names, by the names of the traced functions
    "convolution": "PagedCausalConv1D",
    "padded_delta_rule": "GatedDeltaNet",
    "mamba2": "PagedSelectiveSSM",
}
DELTA_RULE = "torch_recurrent_gated_delta_rule"
PLACE = "delta_rule."  # followed by the layer, the name of a node in a traced graph
PRECISE = '<rt_info><attribute name="precise" version="0"/></rt_info>'

Compute = Callable[[torch.Tensor, torch.Tensor], None]  # given the parts of tokens, computes their outputs


# Only calls to these are traced, so they need not compute anything.
@torch.library.custom_op("lmi_graph::convolution", mutates_args=())
def _convolution(
    input: torch.Tensor,
    table: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor,
    begins: torch.Tensor,
    rows: torch.Tensor,
    rows_begins: torch.Tensor,
    past: torch.Tensor,
    interval: torch.Tensor,
) -> torch.Tensor:
    return torch.zeros_like(input)


@torch.library.custom_op("lmi_graph::mamba2", mutates_args=())
def _mamba2(
    decay: torch.Tensor,
    time: torch.Tensor,
    key: torch.Tensor,
    input: torch.Tensor,
    query: torch.Tensor,
    table: torch.Tensor,
    begins: torch.Tensor,
    rows: torch.Tensor,
    rows_begins: torch.Tensor,
    past: torch.Tensor,
    interval: torch.Tensor,
) -> torch.Tensor:
    return torch.zeros_like(input)


@torch.library.custom_op("lmi_graph::delta_rule", mutates_args=())
def _delta_rule(parts: torch.Tensor, layer: int, size: int) -> torch.Tensor:
    return parts.new_zeros(parts.shape[0], size)


@torch.library.custom_op("lmi_graph::padded_delta_rule", mutates_args=())
def _padded_delta_rule(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    state: torch.Tensor,
    decay: torch.Tensor,
    strength: torch.Tensor,
) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.zeros_like(value), torch.zeros_like(state)


class TracedStates:
    """The inputs and outputs of a traced forward pass for layers with a state."""

    def __init__(self, layers: Items[StateLayer], states: Mapping[int, Cache]) -> None:
        """Take a state of each layer. Raise UnsupportedGraph if OpenVINO has no operation for it."""
        self._states = states
        self.tables: dict[str, list[int]] = {}  # the shapes of the tables' rows, by the name of the input
        self.padded: list[str] = []  # tables whose next states of long sequences are the outputs after the logits
        for layer in layers:
            kept, called = layer.tensors(states[layer.index]), layer.calls(self._steps(layer.index))
            if len(kept) > len(called):
                raise UnsupportedGraph("OpenVINO has no operation for the state of some of its layers")
            if layer.has_limits:
                raise UnsupportedGraph("the time steps of prompts have limits")
            names = [f"state.{layer.index}.{number}" for number in range(len(kept))]
            shapes = [list(state.shape[1:]) for state in kept]
            if DELTA_RULE in called:
                self.padded.append(names[1])
            self.tables.update(zip(names, shapes, strict=True))
        self.begin({})

    @property
    def shapes(self) -> dict[str, list[int]]:
        """The shapes of the inputs by name, with -1 for sizes that vary."""
        if not self.tables:
            return {}
        names = (*PACKED, *DELTA) if self.padded else PACKED
        batch = {name: [-1, -1] if name in ("long_tokens", "long_mask") else [-1] for name in names}
        return {name: [-1, *shape] for name, shape in self.tables.items()} | batch

    def examples(self, num_tokens: int) -> list[torch.Tensor]:
        """Return inputs to trace a forward pass over that number of tokens."""
        return [
            torch.zeros(
                [num_tokens if name == "token_places" else abs(size) for size in shape],
                dtype=torch.float32 if name in (*self.tables, "long_mask") else torch.int32,
            )
            for name, shape in self.shapes.items()
        ]

    def begin(self, inputs: Mapping[str, torch.Tensor]) -> None:
        """Begin a forward pass with these inputs."""
        self._inputs = inputs
        self._after: dict[str, torch.Tensor] = {}  # next states of long sequences, by the name of the table
        self.used: set[str] = set()  # tables

    @property
    def outputs(self) -> list[torch.Tensor]:
        """The outputs after the logits."""
        return [self._after[name] for name in self.padded]

    def mix(self, layer: StateLayer, hidden: torch.Tensor) -> torch.Tensor:
        """Return the output of a layer: [1, tokens, hidden], like `hidden`."""
        # As if each token were the next one of its own sequence.
        return layer.run(hidden[0][:, None], self._states[layer.index], self._steps(layer.index))[None, :, 0]

    def _steps(self, layer: int) -> dict[str, Callable[..., Any]]:
        """Return functions in place of those of `recurrences`, which describe them."""
        return {
            "causal_conv1d_update": partial(self._convolve, f"state.{layer}.0"),
            DELTA_RULE: partial(self._apply_delta_rule, layer),
            "mamba2_selective_state_update": partial(self._apply_mamba2, f"state.{layer}.1"),
        }

    def _table(self, name: str) -> torch.Tensor:
        self.used.add(name)
        return self._inputs[name]

    def _packed(self) -> list[torch.Tensor]:
        return [self._inputs[name] for name in PACKED]

    def _convolve(
        self,
        table: str,
        hidden_states: torch.Tensor,
        conv_state: torch.Tensor,
        weight: torch.Tensor,
        bias: torch.Tensor | None = None,
        activation: str | None = None,
    ) -> torch.Tensor:
        bias = torch.zeros(0) if bias is None else bias
        output: torch.Tensor = _convolution(
            hidden_states[..., 0], self._table(table), weight[:, None], bias, *self._packed()
        )
        return (output if activation is None else ACT2FN[activation](output))[..., None]

    def _apply_mamba2(
        self,
        table: str,
        state: torch.Tensor,
        hidden_states: torch.Tensor,
        dt: torch.Tensor,
        A: torch.Tensor,
        B: torch.Tensor,
        C: torch.Tensor,
        D: torch.Tensor,
        dt_bias: torch.Tensor,
        z: torch.Tensor | None = None,
        **_: object,
    ) -> torch.Tensor:
        time = softplus((dt + dt_bias)[..., 0])
        output: torch.Tensor = _mamba2(A[:, 0, 0], time, B, hidden_states, C, self._table(table), *self._packed())
        output = output + hidden_states * D
        return output if z is None else output * silu(z)

    def _apply_delta_rule(
        self,
        layer: int,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        g: torch.Tensor,
        beta: torch.Tensor,
        initial_state: torch.Tensor,
        use_qk_l2norm_in_kernel: bool = False,
        **_: object,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        queries, keys, values, decay, strength = (states[:, 0] for states in (query, key, value, g, beta))
        if use_qk_l2norm_in_kernel:
            queries, keys = (each * (each.square().sum(-1, keepdim=True) + 1e-6).rsqrt() for each in (queries, keys))
        inputs, table = self._inputs, f"state.{layer}.1"
        states = self._table(table)
        heads, size = values.shape[1:]
        parts = [each.index_select(0, inputs["short_tokens"]) for each in (queries, keys, values, decay, strength)]
        q, k, v, g, b = parts
        of_short = delta_rule_inputs(q, k, v, g.exp()[..., None], b[..., None])
        short: torch.Tensor = _delta_rule(torch.cat([each.flatten(1) for each in of_short], 1), layer, heads * size)
        parts = [each[inputs["long_tokens"]] for each in (queries, keys, values, decay, strength)]
        decay, strength = (each * inputs["long_mask"][..., None] for each in parts[3:])
        before = states.index_select(0, inputs["long_rows"])
        long, self._after[table] = _padded_delta_rule(*parts[:3], before, decay, strength)
        output = torch.cat([short.view(-1, heads, size), long.flatten(0, 1)]).index_select(0, inputs["token_places"])
        return output[:, None], initial_state


def extensions() -> list[ConversionExtension]:
    """Return the conversions of the traced functions; raise UnsupportedGraph if there are none on this machine."""
    library = next(Path(openvino.__file__).parent.glob("libs/*openvino_*_cpu_plugin.*"), None)
    if library is None:
        raise UnsupportedGraph("OpenVINO has no operations for layers with a state on this machine")
    factory = NodeFactory()
    factory.add_extension(library)

    def convert(name: str, context: Any) -> list[Any]:
        inputs = [context.get_input(index) for index in range(context.get_input_size())]
        return list(factory.create(OPERATIONS[name], inputs).outputs())

    return [
        ConversionExtension("lmi_graph::delta_rule", _convert_delta_rule),
        *(ConversionExtension(f"lmi_graph::{name}", partial(convert, name)) for name in OPERATIONS),
    ]


def _convert_delta_rule(context: Any) -> list[Any]:
    # Any operation with this input would do.
    node = ops.concat([context.get_input(0), context.get_input(0)], 1)
    node.set_friendly_name(f"{PLACE}{context.get_values_from_const_input(1)}")
    return list(node.outputs())


class _DeltaRule(openvino.Op):  # type: ignore[misc]
    """A node for the delta rule of short sequences, which PyTorch computes."""

    def __init__(self, compute: Compute, size: int, parts: Items[openvino.Output] = ()) -> None:
        super().__init__(self)
        self._compute, self._size = compute, size
        if parts:
            self.set_arguments([*parts])
            self.constructor_validate_and_infer_types()

    def validate_and_infer_types(self) -> None:
        tokens = self.get_input_partial_shape(0)[0]
        self.set_output_type(0, openvino.Type.f32, openvino.PartialShape([tokens, self._size]))

    def clone_with_new_inputs(self, new_inputs: list[openvino.Output]) -> "_DeltaRule":
        return _DeltaRule(self._compute, self._size, new_inputs)

    def has_evaluate(self) -> bool:
        return True

    def evaluate(self, outputs: list[openvino.Tensor], inputs: list[openvino.Tensor]) -> bool:
        self._compute(*(torch.from_numpy(each.data) for each in (inputs[0], outputs[0])))
        return True


def add_delta_rules(graph: openvino.Model, rules: Mapping[str, tuple[Compute, int]]) -> None:
    """Make a traced graph call these functions for the delta rule, by table, given the size of their outputs."""
    places = {name: node for node in graph.get_ops() if (name := node.get_friendly_name()).startswith(PLACE)}
    for name, place in places.items():
        node = _DeltaRule(*rules[f"state.{name.removeprefix(PLACE)}.1"], [place.input_value(0)])
        place.output(0).replace(node.output(0))


def keep_precision(graph: str) -> str:
    """Return a graph in OpenVINO's format in which these nodes compute in float32, as their tables need.

    Python can only set this attribute in a file.
    """
    return re.sub(rf'(type="({"|".join(OPERATIONS.values())})" version="extension">)', rf"\1{PRECISE}", graph)
