"""Decode steps as CUDA graphs: one call starts all the work of a forward pass, which otherwise takes hundreds of calls.

A graph repeats its work on the same memory, so there is one for each shape of a step; sizes are rounded up to powers of
two, and captured when they first occur, which takes several times as long as a step.
"""

import logging
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from lmi_plugins.torch_engine.cache.block_pool import blocks_for
from lmi_plugins.torch_engine.cache.kv_cache import PagedCache
from lmi_plugins.torch_engine.model.attention import AttentionOptions, AttentionRows, AttentionStep
from lmi_plugins.torch_engine.sequences.step_batch import StepBatch

logger = logging.getLogger(__name__)

MAX_ROWS = 256  # with more, the GPU takes longer for a step than Python does to start it
MIN_WIDTH = 16  # blocks

Pass = Callable[[], torch.Tensor]
Capture = Callable[[Pass], Pass]  # returns a function that repeats a pass on the same memory
Forward = Callable[[torch.Tensor, torch.Tensor, torch.Tensor, AttentionStep], torch.Tensor]


class CudaCapture:
    """The capture of passes on one GPU. They share memory, because they run one at a time."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._pool: Any = None
        self._stream: Any = None  # shared, because its memory is of no other use

    def __call__(self, run: Pass) -> Pass:
        with torch.cuda.device(self._device):
            before = torch.cuda.current_stream()
            stream = self._stream = self._stream or torch.cuda.Stream()  # type: ignore[no-untyped-call]
            stream.wait_stream(before)
            graph: Any = torch.cuda.CUDAGraph()
            try:
                with torch.cuda.stream(stream):
                    run()  # in their first pass, libraries allocate memory, which cannot be captured
                before.wait_stream(stream)
                with torch.cuda.graph(graph, self._pool, stream, capture_error_mode="thread_local"):
                    output = run()
            finally:
                torch.cuda.set_stream(before)  # a failed capture leaves its own stream set
        self._pool = graph.pool()

        def repeat() -> torch.Tensor:
            graph.replay()
            return output

        return repeat


class DecodeStep(AttentionStep):
    """The attention of a step of single tokens, in tensors that stay in place."""

    def __init__(self, cache: PagedCache, rows: int, width: int, dtype: torch.dtype, device: torch.device) -> None:
        self._cache, self._dtype = cache, dtype
        self._width = width
        self._inputs = torch.zeros(rows * (3 + width), dtype=torch.long, device=device)
        self.ids, self.positions, self._slots, tables = torch.split(self._inputs, [rows, rows, rows, rows * width])
        self._tables = tables.view(rows, width)
        self.rows = torch.arange(rows, device=device)

    def begin_pass(self) -> None:
        self._attention = AttentionRows(self.positions[:, None], self._width, self._dtype, self._cache.block_size)

    def fill(self, batch: StepBatch) -> None:
        """Set the inputs. Spare rows repeat the first one and write the same values."""
        chunks = [*batch.chunks, *[batch.chunks[0]] * (len(self.rows) - len(batch.chunks))]
        size, positions = self._cache.block_size, [chunk.start for chunk in chunks]
        tables = [chunk.sequence.block_table[: self._width] for chunk in chunks]
        slots = [table[start // size] * size + start % size for table, start in zip(tables, positions, strict=True)]
        ids = [chunk.sequence.token_ids[chunk.start] for chunk in chunks]
        inputs = np.zeros(len(self._inputs), np.int64)
        inputs[: 3 * len(chunks)] = [*ids, *positions, *slots]
        padded = inputs[3 * len(chunks) :].reshape(len(chunks), self._width)
        for row, table in zip(padded, tables, strict=True):
            row[: len(table)] = table
        self._inputs.copy_(torch.from_numpy(inputs))

    def attend(
        self, layer: int, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, options: AttentionOptions
    ) -> torch.Tensor:
        query, key, value = query[0].transpose(0, 1), key[0].transpose(0, 1), value[0].transpose(0, 1)
        self._cache.write(layer, self._slots, key, value)  # all three: [rows, heads, size]
        return self._attention.attend(query, *self._cache.read(layer, self._tables), options)[None]


class DecodeGraphs:
    """The captured decode steps of one model and cache."""

    def __init__(
        self,
        forward: Forward,
        cache: PagedCache,
        max_blocks: int,
        dtype: torch.dtype,
        device: torch.device,
        capture: Capture,
    ) -> None:
        """Capture steps that gather at most `max_blocks` blocks of each layer."""
        self._forward, self._cache, self._dtype, self._device = forward, cache, dtype, device
        self._max_blocks = max_blocks
        self._capture: Capture | None = capture
        self._graphs: dict[tuple[int, int], tuple[DecodeStep, Pass]] = {}
        self._logits: dict[int, torch.Tensor] = {}  # by number of rows; [rows, vocabulary]

    def run(self, batch: StepBatch) -> torch.Tensor | None:
        """Return the logits of a batch, valid until the next run; None for a batch that cannot be captured."""
        if not self._can_run(batch):
            return None
        width = max(blocks_for(chunk.end, self._cache.block_size) for chunk in batch.chunks)
        shape = _power_of_two(len(batch.chunks)), max(_power_of_two(width), MIN_WIDTH)
        if math.prod(shape) > self._max_blocks:
            return None
        if shape in self._graphs:
            step, repeat = self._graphs[shape]
            step.fill(batch)
        else:
            step = DecodeStep(self._cache, *shape, self._dtype, self._device)
            step.fill(batch)
            captured = self._try_capture(step, math.prod(shape))
            if captured is None:
                return None
            self._graphs[shape] = step, captured
            repeat = captured
        return repeat()[: len(batch.chunks)]

    def _can_run(self, batch: StepBatch) -> bool:
        count = len(batch.chunks)
        if self._capture is None or not batch.num_tokens == count == len(batch.logits_indices) <= MAX_ROWS:
            return False
        sequences = [chunk.sequence for chunk in batch.chunks]
        return all(sequence.adapter is None and sequence.soft_prompt is None for sequence in sequences)

    def _try_capture(self, step: DecodeStep, blocks: int) -> Pass | None:
        """Return the captured pass; None on failure, after which no other capture, or if memory ran out no larger one,
        is tried.
        """
        assert self._capture is not None
        try:
            return self._capture(lambda: self._pass(step))
        except torch.OutOfMemoryError:
            logger.warning(
                "Decode steps of %d blocks and more run without CUDA graphs, because there is too little memory", blocks
            )
            self._max_blocks = blocks - 1
            return None
        except RuntimeError as error:
            logger.warning("Decode steps run without CUDA graphs, which is slower: %s", str(error).partition("\n")[0])
            self._capture = None
            self._graphs.clear()
            return None

    def _pass(self, step: DecodeStep) -> torch.Tensor:
        step.begin_pass()
        logits = self._forward(step.ids[None], step.positions[None], step.rows, step)
        rows = logits.shape[0]
        if rows not in self._logits:
            self._logits[rows] = torch.empty_like(logits)  # not in the graphs' memory, which the next graph reuses
        return self._logits[rows].copy_(logits)


def _power_of_two(number: int) -> int:
    """Round up to a power of two."""
    return 1 << (number - 1).bit_length()
