"""The tables of states that OpenVINO reads and writes, and their rows, which belong to sequences."""

from collections.abc import Sequence as Items
from itertools import accumulate
from typing import Any

import numpy as np
import openvino
import torch

from lmi_plugins.torch_engine.model.graph.state_nodes import PACKED, SINGLE, TracedStates
from lmi_plugins.torch_engine.model.graph.weights import as_tensor
from lmi_plugins.torch_engine.sequences.sequence import Sequence

Array = np.ndarray[Any, np.dtype[Any]]

START = 0  # a row of zeros, the state before a sequence's first token
FIRST_SIZE = 8  # rows
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
        self._request, self._prompts = request, states.prompts
        self._size = 1
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
        if not self._prompts:
            return packed
        starts = begins(lengths)
        single = [index for index, length in enumerate(lengths) if length == 1]
        prompts = [index for index, length in enumerate(lengths) if length > 1]
        width = max((lengths[index] for index in prompts), default=1)
        places = {index: [place] for place, index in enumerate(single)}
        for index in prompts:
            first = len(single) + prompts.index(index) * width
            places[index] = [*range(first, first + lengths[index])]
        offsets = np.arange(width)
        mask = offsets < np.array([lengths[index] for index in prompts], np.int32).reshape(-1, 1)
        return {
            **packed,
            **_packed(SINGLE, [1] * len(single), [rows[index] for index in single]),
            "single_tokens": starts[single],
            "prompt_tokens": (starts[prompts].reshape(-1, 1) + offsets * mask).astype(np.int32),
            "prompt_mask": mask.astype(np.float32),
            "prompt_rows": np.array([rows[index][0] for index in prompts], np.int32),
            "token_places": np.array([place for index in sorted(places) for place in places[index]], np.int32),
        }

    def store(self, lengths: Items[int], rows: Items[tuple[int, int]]) -> None:
        """Store those states of a finished step that are among its outputs."""
        after = [row for length, (_, row) in zip(lengths, rows, strict=True) if length > 1]
        if not after:
            return
        for output, name in enumerate(self._prompts, 1):
            self._tables[name][after] = torch.from_numpy(self._request.get_output_tensor(output).data)


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
