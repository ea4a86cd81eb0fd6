"""Layers that carry a state of fixed size from token to token: Mamba, linear attention, short convolutions.

transformers computes them for rows of equal length, not for packed tokens, so their modules get each group of a step
by itself. The states of decoding sequences stay in one batch, as long as the steps have the same sequences.
"""

import inspect
import math
import sys
from collections.abc import Callable, Iterator, Mapping
from collections.abc import Sequence as Items
from copy import copy
from typing import Any, NamedTuple

import torch
from transformers import Cache, PreTrainedModel
from transformers.cache_utils import DynamicLayer, LinearAttentionLayer

from lmi_plugins.torch_engine.model.attention import UnsupportedAttention, current_step
from lmi_plugins.torch_engine.model.recurrences import calling, steps_from
from lmi_plugins.torch_engine.sequences.sequence import Sequence

CACHE_ARGUMENTS = ("cache_params", "past_key_values")
NO_LIMITS = (0.0, math.inf)
STATES = ("conv_states", "recurrent_states")  # attributes of a layer in transformers' cache, each a mapping by index


class StateRow(NamedTuple):
    """The states of one sequence: a row in a batch of states. A sequence has none before its first chunk."""

    states: Cache
    row: int
    kept: bool = False  # for other sequences too, so that it must not change


class StateLayer:
    """A module whose forward pass is computed by the running step."""

    def __init__(self, module: Any, number: int) -> None:
        self.index: int = module.layer_idx
        self._number = number  # number of states in the layer
        self._module = module
        self._cache_argument = _cache_argument(module)
        # transformers applies limits of Mamba 2's time steps to prompts only.
        self.has_limits = tuple(getattr(module, "time_step_limit", NO_LIMITS)) != NO_LIMITS
        module.forward = lambda hidden_states, *_, **__: current_step().mix(self, hidden_states)

    def restore(self) -> None:
        """Restore the computation of the module's class."""
        del self._module.forward

    def new_cache(self) -> LinearAttentionLayer:
        return LinearAttentionLayer(self._number)

    def run(
        self, hidden: torch.Tensor, states: Cache | None, functions: Mapping[str, Callable[..., Any]] | None = None
    ) -> torch.Tensor:
        """Return the output for rows, [rows, tokens, hidden], whose states are updated in place.

        `functions` replace those of `recurrences`.
        """
        if functions is None:
            known: Any = None if states is None else states.layers[self.index]
            functions = steps_from(None if known is None else known.recurrent_states[0])
        with calling(functions, self._module):
            output: torch.Tensor = type(self._module).forward(self._module, hidden, **{self._cache_argument: states})
        return output

    def calls(self, functions: Mapping[str, object]) -> set[str]:
        """Return which of these functions the module's code may call."""
        return functions.keys() & vars(sys.modules[type(self._module).__module__]).keys()

    def try_out(self, hidden: torch.Tensor) -> tuple[torch.Tensor, Cache]:
        """Return the output for the beginning of a sequence, and its states."""
        states = new_states([self])
        return self.run(hidden, states), states

    def check_rows(self, hidden: torch.Tensor) -> None:
        """Raise UnsupportedAttention if several sequences, with these tokens, cannot be computed together."""
        states, rows = new_states([self]), hidden.repeat(2, 1, 1)
        self.run(rows, states)
        # Falcon-H1's gated norm returns other shapes, for example.
        if self.run(rows[:, :1], states).shape[:2] != (2, 1):
            raise UnsupportedAttention("some of its layers compute one sequence at a time")

    def tensors(self, states: Cache) -> list[torch.Tensor]:
        """Return the layer's own part of the states."""
        parts = (getattr(states.layers[self.index], name) for name in STATES)
        return [state for part in parts for state in part.values() if state is not None]


def has_state_layers(model: PreTrainedModel) -> bool:
    return any(True for _ in _modules(model))


def replace_state_layers(model: PreTrainedModel) -> list[StateLayer]:
    """Replace the forward pass of all modules with a state; see StateLayer."""
    number = getattr(model.config.get_text_config(), "number_of_conv_states", 1)
    return [StateLayer(module, number) for module in _modules(model)]


def _modules(model: PreTrainedModel) -> Iterator[torch.nn.Module]:
    """Yield the modules with a state. transformers' all have a convolution, and take the cache."""
    for module in model.modules():
        convolves = any(isinstance(child, torch.nn.Conv1d) for child in module.children())
        if convolves and hasattr(module, "layer_idx") and _cache_argument(module):
            yield module


def _cache_argument(module: torch.nn.Module) -> str:
    arguments = inspect.signature(type(module).forward).parameters
    return next((name for name in CACHE_ARGUMENTS if name in arguments), "")


def new_states(layers: Items[StateLayer]) -> Cache:
    """Return the states of new sequences."""
    by_index = {layer.index: layer for layer in layers}
    other: Any = DynamicLayer  # not typed
    return Cache([by_index[index].new_cache() if index in by_index else other() for index in range(max(by_index) + 1)])


def states_of(sequences: Items[Sequence], layers: Items[StateLayer]) -> Cache:
    """Return the states of the sequences, one row each, to be updated in place; the sequences then own them."""
    rows = [row if isinstance(row := sequence.row_cache, StateRow) else None for sequence in sequences]
    known = [row for row in rows if row is not None]
    if not known:
        states = new_states(layers)
    elif _is_whole(rows):
        return known[0].states
    else:
        states = _gather(rows)
    for index, sequence in enumerate(sequences):
        sequence.row_cache = StateRow(states, index)
    return states


def _is_whole(rows: Items[StateRow | None]) -> bool:
    """Return whether the rows are all rows of the same states, in order."""
    first = rows[0]
    if first is None or len(rows) != _height(first.states):
        return False
    return all(row == (first.states, at, False) for at, row in enumerate(rows))


def fixed_state(state: object) -> object:
    """Return a sequence's state as it is now, unchanged by later steps."""
    return StateRow(_gather([state]), 0, kept=True) if isinstance(state, StateRow) else state  # OpenVINO's never change


def _gather(rows: Items[StateRow | None]) -> Cache:
    """Return a copy of these rows, of which at least one is known."""
    states = copy(next(row.states for row in rows if row is not None))
    states.layers = [
        _join([None if row is None else (row.states.layers[index], row.row) for row in rows])
        if isinstance(layer, LinearAttentionLayer)
        else layer
        for index, layer in enumerate(states.layers)
    ]
    return states


def _height(states: Cache) -> int:
    layer: Any = next(layer for layer in states.layers if isinstance(layer, LinearAttentionLayer))
    return len(layer.conv_states[0])


def _join(rows: Items[tuple[Any, int] | None]) -> Any:
    """Return a layer of the cache with these rows of others; zeros are the state of a new sequence."""
    like, place = next(row for row in rows if row is not None)
    joined = copy(like)
    for name in STATES:
        joined_states = {}
        for index, state in getattr(like, name).items():
            zeros = None if state is None else torch.zeros_like(state[place])
            parts = [
                zeros if row is None else getattr(row[0], name)[index][row[1]] for row in rows if zeros is not None
            ]
            joined_states[index] = torch.stack(parts) if parts else None
        setattr(joined, name, joined_states)
    return joined
