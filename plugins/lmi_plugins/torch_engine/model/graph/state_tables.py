"""The tables of states that OpenVINO reads and writes, and their rows, which belong to sequences."""

from collections.abc import Sequence as Items
from itertools import accumulate
from typing import Any

import numpy as np
import openvino
import torch

from lmi_plugins.torch_engine.model.graph.state_nodes import PACKED, SHORT, TracedStates
from lmi_plugins.torch_engine.model.graph.weights import as_tensor
from lmi_plugins.torch_engine.sequences.sequence import Sequence

Array = np.ndarray[Any, np.dtype[Any]]

START = 0  # a row of zeros, the state before a sequence's first token
FIRST_SIZE = 8  # rows
PADDED_SPEED = 5  # times as many tokens per second, measured with prompts of 512 tokens and 16 heads of 128
INTERVAL = 1 << 30  # tokens between written states: only the last one of a step is


class TableRow:
    """A row of all tables, which becomes free when nothing refers to it; sequences that have forked share one."""

    def __init__(self, number: int, free: list[int]) -> None:
        self.number = number
        self._free = free

    def __del__(self) -> None:
        self._free.append(self.number)


class StateTables:
    """The states of all sequences, in tables that grow with their number."""

    def __init__(self, states: TracedStates, request: openvino.InferRequest) -> None:
        """Make the tables inputs of the request."""
        self._request, self._padded = request, states.padded
        self._size = 1  # START; other rows are written before they are read
        self._free: list[int] = []
        self._tables = {name: torch.zeros(1, *shape) for name, shape in states.tables.items()}
        self.row_bytes = sum(table.nbytes for table in self._tables.values())
        self._grow(FIRST_SIZE)

    def next_rows(self, count: int) -> list[TableRow]:
        """Return new rows for that number of sequences.

        A state is never written to the row it was read from, which others may share, or need if the step fails.
        """
        if len(self._free) < count:
            self._grow(self._size + max(count, self._size // 2))
        return [TableRow(self._free.pop(), self._free) for _ in range(count)]

    def _grow(self, size: int) -> None:
        for name, table in self._tables.items():
            larger = self._tables[name] = torch.empty(size, *table.shape[1:])
            larger[: self._size] = table
            self._request.set_tensor(name, as_tensor(larger))
        self._free[:0] = range(size - 1, self._size - 1, -1)
        self._size = size

    def inputs(self, lengths: Items[int], rows: Items[tuple[int, int]]) -> dict[str, Array]:
        """Return the inputs of the graph for sequences with so many tokens, by the rows of their states before and
        after."""
        if not self._tables:
            return {}
        packed = _packed(PACKED, lengths, rows)
        if not self._padded:
            return packed
        starts = begins(lengths)
        long = long_ones(lengths)
        short = [index for index in range(len(lengths)) if index not in long]
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
            **_packed(SHORT, [lengths[index] for index in short], [rows[index] for index in short]),
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


def _packed(names: Items[str], lengths: Items[int], rows: Items[tuple[int, int]]) -> dict[str, Array]:
    count = len(lengths)
    values = (
        begins(lengths),
        np.array(rows, np.int32).flatten(),
        begins([2] * count),
        np.zeros(count, np.int32),
        np.full(count, INTERVAL, np.int32),
    )
    return dict(zip(names, values, strict=True))
