"""Forward passes on the CPU by OpenVINO, over a cache that PyTorch can use too."""

import ctypes
import sys
from collections.abc import Iterator
from collections.abc import Sequence as Items
from contextlib import contextmanager
from functools import cached_property
from typing import Any

import numpy as np
import openvino
import torch
from transformers import PreTrainedModel

from lmi_core.errors.sizes import readable
from lmi_plugins.torch_engine.cache.block_pool import blocks_for
from lmi_plugins.torch_engine.cache.kv_cache import HeadFirstCache
from lmi_plugins.torch_engine.cache.memory import free_memory
from lmi_plugins.torch_engine.messages.requests import EngineOptions, Quantization
from lmi_plugins.torch_engine.model.attention import LayoutProbe
from lmi_plugins.torch_engine.model.graph.attention_nodes import BLOCK_SIZE, add_attention, cache_names
from lmi_plugins.torch_engine.model.graph.state_nodes import TracedStates, add_delta_rules
from lmi_plugins.torch_engine.model.graph.state_tables import START, StateTables, begins, row_number
from lmi_plugins.torch_engine.model.graph.stored import load_graph
from lmi_plugins.torch_engine.model.graph.tracing import (
    INPUTS,
    LAYER_INPUTS,
    layer_embeddings,
    layer_shape,
    weights_of,
)
from lmi_plugins.torch_engine.model.graph.weights import add_weights, as_tensor
from lmi_plugins.torch_engine.model.model_runner import UnsupportedGraph
from lmi_plugins.torch_engine.model.paged_runner import PagedRunner
from lmi_plugins.torch_engine.model.soft_prompt import embedding_weight
from lmi_plugins.torch_engine.sequences.step_batch import StepBatch

Array = np.ndarray[Any, np.dtype[Any]]

CAPABILITIES = {torch.float32: "FP32", torch.bfloat16: "BF16", torch.float16: "FP16"}
# OpenVINO's default does not depend on the model.
PRECISIONS = {torch.float32: "f32", torch.bfloat16: "bf16", torch.float16: "f16"}
BITS: dict[Quantization | None, int] = {"int8": 8, "int4": 4}  # of quantized weights
PROGRESS_MILLISECONDS = 500  # between signs of life during a long step


class SignalStack(ctypes.Structure):
    """C's stack_t: the memory on which a thread handles signals."""

    _fields_ = (("address", ctypes.c_void_p), ("flags", ctypes.c_int), ("size", ctypes.c_size_t))

    @classmethod
    def current(cls) -> "SignalStack":
        stack = cls()
        ctypes.CDLL(None).sigaltstack(None, ctypes.byref(stack))
        return stack


@contextmanager
def same_signal_stack() -> Iterator[None]:
    """Keep the thread's stack for signals.

    OpenVINO sets up another one. If the model is freed in another thread, its memory is unmapped, but still in use: the
    next signal would kill the process.
    """
    if sys.platform != "linux":
        yield
        return
    stack = SignalStack.current()
    try:
        yield
    finally:
        ctypes.CDLL(None).sigaltstack(ctypes.byref(stack), None)


class OpenVinoRunner(PagedRunner):
    """A runner whose steps OpenVINO computes, except those with adapters, which PyTorch computes unchanged."""

    block_size = BLOCK_SIZE
    cache_type = HeadFirstCache
    _cache: HeadFirstCache

    def __init__(self, model: PreTrainedModel, max_length: int, options: EngineOptions) -> None:
        """Compile the model's graph. Raise UnsupportedAttention or UnsupportedGraph if that fails."""
        self._quantize = options.quantize
        self._layer_embeddings = layer_embeddings(model)
        super().__init__(model, max_length, BLOCK_SIZE)

    @cached_property
    def dtype(self) -> torch.dtype:
        """The model's own type if the CPU has instructions for it, else float32, in which OpenVINO then computes."""
        supported = openvino.Core().get_property("CPU", "OPTIMIZATION_CAPABILITIES")
        return self._model.dtype if CAPABILITIES[self._model.dtype] in supported else torch.float32

    def _optimize(self, probe: LayoutProbe) -> None:
        if not all(options._replace(window=None).is_plain(0) for options in self._options.values()):
            raise UnsupportedGraph("its attention has a soft cap, sinks or ALiBi")
        if self.rope is not None:
            raise UnsupportedGraph("its rotary embedding depends on the length of the sequence")
        self._check_memory()
        try:
            states = TracedStates(self.state_layers, probe.states)
            self._states = StateTables(states)
            compiled = self._compile(states)
            self._request = compiled.create_infer_request()
            self._vocabulary = compiled.output(0).partial_shape[1].get_length()
            self._states.attach(self._request)
            self.state_bytes = self._states.row_bytes
            self._try_out()
        except UnsupportedGraph:
            raise
        except Exception as error:  # OpenVINO raises exceptions of many classes
            raise UnsupportedGraph(f"OpenVINO does not support it: {_first_line(error)}") from error

    def _check_memory(self) -> None:
        """Raise UnsupportedGraph if OpenVINO's copy of the weights does not fit in memory."""
        head: Any = self._model.get_output_embeddings()  # type: ignore[no-untyped-call]
        embedding = embedding_weight(self._model)
        outside = 0 if head is not None and head.weight is embedding else embedding.numel()
        if self._layer_embeddings is not None:
            outside += sum(weight.numel() for weight in self._layer_embeddings.parameters())
        number = sum(weight.numel() for weight in weights_of(self._model).values()) - outside
        needed = number * BITS.get(self._quantize, 8 * self.dtype.itemsize) // 8
        free = free_memory(self._model.device)
        if free < needed:
            raise UnsupportedGraph(
                f"OpenVINO's copy of the weights would need {readable(needed)}, but {readable(free)} are free"
            )

    @torch.inference_mode()
    def _compile(self, states: TracedStates) -> openvino.CompiledModel:
        model = self._model
        graph = load_graph(model, states)
        add_attention(graph, self._shapes, self._options, self.dtype)
        add_delta_rules(graph, self._states.rules)
        head: Any = model.get_output_embeddings()  # type: ignore[no-untyped-call]
        self._weights = add_weights(graph, weights_of(model), self._quantize, None if head is None else head.weight)
        hidden = embedding_weight(model).shape[1]
        shapes = {**dict(zip(INPUTS, ([1, -1, hidden], [1, -1], [-1]), strict=True)), **states.shapes}
        if self._layer_embeddings is not None:
            shapes[LAYER_INPUTS] = [1, -1, *layer_shape(model)]
        for parameter in graph.get_parameters():
            if (shape := shapes.get(parameter.get_friendly_name())) is not None:
                parameter.set_partial_shape(openvino.PartialShape(shape))
        graph.validate_nodes_and_infer_types()
        properties = {
            "INFERENCE_PRECISION_HINT": PRECISIONS[self.dtype],
            "INFERENCE_NUM_THREADS": torch.get_num_threads(),
            "ENABLE_CPU_PINNING": False,  # other processes might be pinned to the same cores
        }
        with same_signal_stack():
            return openvino.Core().compile_model(graph, "CPU", properties)

    @torch.inference_mode()
    def _try_out(self) -> None:
        """Run a step of two tokens, because OpenVINO finds some faults only then; this also arranges the weights."""
        cache = self._new_cache(1)
        hidden = embedding_weight(self._model).shape[1]
        # Not those of a token, which may be zeros.
        embeddings = torch.randn(1, 2, hidden, generator=torch.Generator().manual_seed(0))
        together = self._try_tokens(embeddings, 0, (START, 1))
        if self.state_layers:
            self._try_tokens(embeddings[:, :1], 0, (START, 2))
            apart = self._try_tokens(embeddings[:, 1:], 1, (2, 3))
            if not torch.allclose(together, apart, atol=0.1 * float(together.abs().max())):
                raise UnsupportedGraph("its second token differs without the first one: OpenVINO loses states")
        del cache  # not earlier, because OpenVINO does not own it

    def _try_tokens(self, embeddings: torch.Tensor, start: int, rows: tuple[int, int]) -> torch.Tensor:
        """Return the logits after the last of these tokens of a sequence, [1, tokens, hidden]."""
        count = embeddings.shape[1]
        end = start + count
        inputs: dict[str, Array] = {
            "position_ids": np.array([range(start, end)], np.int64),
            "logits_indices": np.array([count - 1], np.int64),
            "past_lens": np.array([start], np.int32),
            "subsequence_begins": begins([count]),
            "block_indices": np.array([1], np.int32),
            "block_indices_begins": begins([1]),
            "max_context_len": np.array(end, np.int32),
        }
        return self._infer(inputs, embeddings.contiguous(), [0] * count, [count], [rows])

    def _new_cache(self, blocks: int) -> HeadFirstCache:
        cache = HeadFirstCache(self._shapes, blocks, self._model.dtype, self.dtype, self.block_size)
        for layer in self._shapes:
            for name, part in zip(cache_names(layer), cache.parts(layer), strict=True):
                self._request.set_tensor(name, as_tensor(part))
        return cache

    def run(self, batch: StepBatch, new_blocks: list[int]) -> torch.Tensor:
        with_adapters = [chunk for chunk in batch.chunks if chunk.sequence.adapter is not None]
        if not with_adapters:
            return self._run_graph(batch, new_blocks)
        others = [chunk for chunk in batch.chunks if chunk.sequence.adapter is None]
        if not self.state_layers or not others:
            return super().run(batch, new_blocks)
        # Each library keeps states in its own way, and each sequence stays with one of them.
        parts = [StepBatch(with_adapters), StepBatch(others)]
        results = [super().run(parts[0], new_blocks), self._run_graph(parts[1], [])]
        logits = {
            chunk.sequence: result[rows]
            for part, result in zip(parts, results, strict=True)
            for chunk, rows in zip(part.chunks, part.logits_rows, strict=True)
        }
        return torch.cat([logits[chunk.sequence] for chunk in batch.chunks])

    def _run_graph(self, batch: StepBatch, new_blocks: list[int]) -> torch.Tensor:
        self._copy.forget()
        if new_blocks:
            self._cache.clear(torch.tensor(new_blocks))
        embeddings = self._embed(batch)
        if embeddings is None:
            embeddings = self._model.get_input_embeddings()(torch.tensor([batch.token_ids]))
        sequences = [chunk.sequence for chunk in batch.chunks]
        after = self._states.next_rows(len(sequences))
        rows = [(row_number(sequence), row.number) for sequence, row in zip(sequences, after, strict=True)]
        lengths = [len(chunk) for chunk in batch.chunks]
        logits = self._infer(_batch_inputs(batch), embeddings.float(), batch.token_ids, lengths, rows)
        for sequence, row in zip(sequences, after, strict=True):
            sequence.row_cache = row
        return logits

    def _infer(
        self,
        inputs: dict[str, Array],
        embeddings: torch.Tensor,
        token_ids: Items[int],
        lengths: Items[int],
        rows: Items[tuple[int, int]],
    ) -> torch.Tensor:
        """Return the requested logits.

        Given are the embeddings of all tokens, [1, tokens, hidden], in float32, their ids, the number of tokens of each
        sequence, and the rows of its states before and after them.
        """
        logits = torch.empty(len(inputs["logits_indices"]), self._vocabulary)
        inputs |= self._states.inputs(lengths, rows)
        for name, array in inputs.items():
            self._request.set_tensor(name, openvino.Tensor(array))
        self._request.set_tensor("inputs_embeds", as_tensor(embeddings))
        if self._layer_embeddings is not None:
            of_layers = self._layer_embeddings(torch.tensor([token_ids])).unflatten(2, layer_shape(self._model)).float()
            self._request.set_tensor(LAYER_INPUTS, as_tensor(of_layers))
        self._request.set_output_tensor(0, as_tensor(logits))
        self._request.start_async()
        while not self._request.wait_for(PROGRESS_MILLISECONDS):
            self.progress()
        self._states.store(lengths, rows)
        return logits


def _batch_inputs(batch: StepBatch) -> dict[str, Array]:
    """Return the inputs that describe each token and the place of its context in the cache."""
    tables = [chunk.sequence.block_table[: blocks_for(chunk.end, BLOCK_SIZE)] for chunk in batch.chunks]
    return {
        "position_ids": np.array([batch.positions], np.int64),
        "logits_indices": np.array(batch.logits_indices, np.int64),
        "past_lens": np.array([chunk.start for chunk in batch.chunks], np.int32),
        "subsequence_begins": begins([len(chunk) for chunk in batch.chunks]),
        "block_indices": np.array([block for table in tables for block in table], np.int32),
        "block_indices_begins": begins([len(table) for table in tables]),
        "max_context_len": np.array(max(chunk.end for chunk in batch.chunks), np.int32),
    }


def _first_line(error: Exception) -> str:
    """Return the cause in an error of OpenVINO, which starts with lines about its own code."""
    own = ("Exception from", "Caught exception", "Check ")
    lines = [line for line in str(error).splitlines() if line and not line.startswith(own)]
    return lines[0] if lines else type(error).__name__
