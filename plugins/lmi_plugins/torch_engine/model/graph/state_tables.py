"""The tables of states that OpenVINO reads and writes, and their rows, which belong to sequences."""

from collections.abc import Iterator
from collections.abc import Sequence as Items
from contextlib import contextmanager
from functools import partial
from itertools import accumulate
from math import prod
from typing import Any, NamedTuple
from weakref import proxy

import numpy as np
import openvino
import torch

from lmi_plugins.torch_engine.model.graph.state_nodes import PACKED, Compute, TracedStates
from lmi_plugins.torch_engine.model.graph.weights import as_tensor
from lmi_plugins.torch_engine.model.recurrences import DeltaInputs, apply_delta_rule
from lmi_plugins.torch_engine.sequences.sequence import Sequence

Array = np.ndarray[Any, np.dtype[Any]]

START = 0  # a row of zeros, the state before a sequence's first token
FIRST_SIZE = 8  # rows
PADDED_SPEED = 5  # times as many tokens per second, measured with prompts of 512 tokens and 16 heads of 128
INTERVAL = 1 << 30  # tokens between written states: only the last one of a step is

Indices = slice | list[int]


class Round(NamedTuple):
    """Tokens of different sequences, computed together: their numbers, and the rows of states before and after them."""

    tokens: Indices
    before: Indices
    after: Indices


class TableRow:
    """A row of all tables, which becomes free when nothing refers to it; sequences that have forked share one."""

    def __init__(self, number: int, free: list[int]) -> None:
        self.number = number
        self._free = free

    def __del__(self) -> None:
        self._free.append(self.number)


class StateTables:
    """The states of all sequences, in tables that grow with their number."""

    def __init__(self, states: TracedStates) -> None:
        self._padded = states.padded
        self._size = 1  # START; other rows are written before they are read
        self._free: list[int] = []
        self._tables = {name: torch.zeros(1, *shape) for name, shape in states.tables.items()}
        self.row_bytes = sum(table.nbytes for table in self._tables.values())
        self._rounds: list[Round] = []

    def attach(self, request: openvino.InferRequest) -> None:
        """Make the tables inputs of the request."""
        self._request = request
        self._grow(FIRST_SIZE)

    @property
    def rules(self) -> dict[str, tuple[Compute, int]]:
        """The functions for the delta rule of short sequences, by table, and the size of their outputs."""
        tables = proxy(self)  # OpenVINO would keep itself alive by them
        return {
            name: (partial(StateTables._apply_delta_rule, tables, name), table.shape[1] * table.shape[3])
            for name, table in self._tables.items()
            if name in self._padded
        }

    @torch.inference_mode()
    def _apply_delta_rule(self, name: str, parts: torch.Tensor, output: torch.Tensor) -> None:
        """Compute the outputs of short sequences, [tokens, heads * value], given their inputs, [tokens, sizes]."""
        table = self._tables[name]
        heads, key, value = table.shape[1:]
        shapes = (heads, 2, key), (heads, value), (heads, 1), (heads, 1), (heads, 1)
        sizes = [prod(shape) for shape in shapes]
        with _threads_for(len(parts)):
            for tokens, before, after in self._rounds:
                split = torch.split(parts[tokens], sizes, 1)
                inputs = DeltaInputs(*(each.view(-1, *shape) for each, shape in zip(split, shapes, strict=True)))
                result = table[after] if isinstance(after, slice) else table.new_empty(len(after), *table.shape[1:])
                output[tokens] = apply_delta_rule(inputs, table[before], result).flatten(1)
                if not isinstance(after, slice):
                    table[after] = result

    def next_rows(self, count: int) -> list[TableRow]:
        """Return new rows for that number of sequences.

        A state is never written to the row it was read from, which others may share, or need if the step fails.
        """
        if len(self._free) < count:
            self._grow(self._size + max(count, self._size // 2))
        free = self._free
        free.sort()
        # In a row, if possible: such rows need not be copied.
        first = next((at for at in range(len(free) - count + 1) if free[at + count - 1] - free[at] == count - 1), 0)
        numbers = free[first : first + count]
        del free[first : first + count]
        return [TableRow(number, free) for number in numbers]

    def _grow(self, size: int) -> None:
        for name, table in self._tables.items():
            larger = self._tables[name] = torch.empty(size, *table.shape[1:])
            larger[: self._size] = table
            self._request.set_tensor(name, as_tensor(larger))
        self._free += range(self._size, size)
        self._size = size

    def inputs(self, lengths: Items[int], rows: Items[tuple[int, int]]) -> dict[str, Array]:
        """Return the inputs of the graph for sequences with so many tokens, by the rows of their states before and
        after."""
        if not self._tables:
            return {}
        packed = _packed(lengths, rows)
        if not self._padded:
            return packed
        starts = begins(lengths)
        long = long_ones(lengths)
        short = [index for index in range(len(lengths)) if index not in long]
        self._rounds = _rounds([lengths[index] for index in short], [rows[index] for index in short])
        width = max((lengths[index] for index in long), default=1)
        offsets = np.arange(width)
        mask = offsets < np.array([lengths[index] for index in long], np.int32).reshape(-1, 1)
        tokens = [range(starts[index], starts[index + 1]) for index in short]
        # Where each token is among the outputs: first short sequences, then rows of padded ones.
        places = np.empty(starts[-1], np.int32)
        short_tokens = np.array([token for each in tokens for token in each], np.int32)
        places[short_tokens] = np.arange(len(short_tokens))
        for row, index in enumerate(long):
            first = len(short_tokens) + row * width
            places[starts[index] : starts[index + 1]] = first + np.arange(lengths[index])
        return {
            **packed,
            "short_tokens": short_tokens,
            "long_tokens": (starts[long].reshape(-1, 1) + offsets * mask).astype(np.int32),
            "long_mask": mask.astype(np.float32),
            "long_rows": np.array([rows[index][0] for index in long], np.int32),
            "token_places": places,
        }

    def store(self, lengths: Items[int], rows: Items[tuple[int, int]]) -> None:
        """Store those states of a finished step that are among its outputs."""
        after = [rows[index][1] for index in long_ones(lengths)]
        if not after:
            return
        for output, name in enumerate(self._padded, 1):
            self._tables[name][after] = torch.from_numpy(self._request.get_output_tensor(output).data)


def long_ones(lengths: Items[int]) -> list[int]:
    """Return the indices of sequences that are computed faster if they are padded to the longest one."""
    longest = max(lengths)
    return [index for index, length in enumerate(lengths) if length > 1 and PADDED_SPEED * length > longest]


def row_number(sequence: Sequence) -> int:
    """Return the row with the sequence's state."""
    row = sequence.row_cache
    return row.number if isinstance(row, TableRow) else START


def begins(lengths: Items[int]) -> Array:
    """Return the index at which each part begins, and the end of the last."""
    return np.array([0, *accumulate(lengths)], np.int32)


def _packed(lengths: Items[int], rows: Items[tuple[int, int]]) -> dict[str, Array]:
    count = len(lengths)
    values = (
        begins(lengths),
        np.array(rows, np.int32).flatten(),
        begins([2] * count),
        np.zeros(count, np.int32),
        np.full(count, INTERVAL, np.int32),
    )
    return dict(zip(PACKED, values, strict=True))


def _rounds(lengths: Items[int], rows: Items[tuple[int, int]]) -> list[Round]:
    """Return the rounds that compute the first token of each sequence, then the second ones, and so on."""
    firsts = begins(lengths)
    rounds = []
    for number in range(max(lengths, default=0)):
        active = [index for index, length in enumerate(lengths) if length > number]
        before = [rows[index][min(number, 1)] for index in active]
        after = [rows[index][1] for index in active]
        rounds.append(Round(*map(_as_slice, ([int(firsts[index]) + number for index in active], before, after))))
    return rounds


@contextmanager
def _threads_for(states: int) -> Iterator[None]:
    """Compute a single state with one thread, which is done before others would begin."""
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(1 if states == 1 else threads)
        yield
    finally:
        torch.set_num_threads(threads)


def _as_slice(numbers: list[int]) -> Indices:
    """Return numbers in a row as a slice, which makes a view instead of a copy."""
    first, last = numbers[0], numbers[-1]
    return slice(first, last + 1) if numbers == [*range(first, last + 1)] else numbers
