"""A forward pass for each sequence with transformers' own cache: slower, but correct for any causal language model."""

import inspect
import logging
from dataclasses import replace
from typing import Any

import torch
from transformers import Cache, PreTrainedModel

from lmi_plugins.torch_engine.cache.block_pool import BLOCK_SIZE
from lmi_plugins.torch_engine.model.model_runner import ModelRunner
from lmi_plugins.torch_engine.model.rope_by_length import RopeByLength, applied_to_chunks
from lmi_plugins.torch_engine.model.soft_prompt import embed
from lmi_plugins.torch_engine.model.transformers_internals import is_stateful
from lmi_plugins.torch_engine.sequences.step_batch import Chunk, StepBatch

logger = logging.getLogger(__name__)

UNSPLIT = {"axk2", "minimax", "moshi", "zamba2"}  # they cannot continue a prompt from the state of its first part
CACHE_ARGUMENTS = ("past_key_values", "cache_params", "state")  # of attention, Mamba and RWKV layers


class RowRunner(ModelRunner):
    """A runner of one sequence at a time, each with the cache of its last pass; blocks only account for memory."""

    paged = False

    def __init__(self, model: PreTrainedModel, max_length: int) -> None:
        self._model = model
        self.rope = RopeByLength.of(model, max_length)
        self.splits_prompts = model.config.model_type not in UNSPLIT and (self.rope is None or bool(self.rope.modules))
        self._keeps_cache = True
        self._is_stateful = is_stateful(model)
        arguments = inspect.signature(model.forward).parameters
        self._cache_argument = next((name for name in CACHE_ARGUMENTS if name in arguments), "past_key_values")
        self._takes_position_ids = "position_ids" in arguments
        self._takes_logits_to_keep = "logits_to_keep" in arguments
        self._vocabulary, self.block_bytes = self._probe()

    def allocate(self, blocks: int) -> None:
        """Do nothing: caches grow with their sequences."""

    def copy(self, copies: dict[int, int]) -> None:
        raise AssertionError("sequences have no shared blocks")

    def run(self, batch: StepBatch, new_blocks: list[int]) -> torch.Tensor:
        chunks = zip(batch.chunks, batch.logits_rows, strict=True)
        return torch.cat([self._run_alone(chunk, rows.stop - rows.start) for chunk, rows in chunks])

    def _run_alone(self, chunk: Chunk, num_logits: int) -> torch.Tensor:
        """Return the logits of the chunk's last tokens; NaN if its sequence fails alone."""
        try:
            return self._run(chunk, num_logits)
        except torch.AcceleratorError:  # the device can no longer be used
            raise
        except Exception:
            logger.exception("Request %s failed", chunk.sequence.request_id)
            return torch.full((num_logits, self._vocabulary), float("nan"), device=self._model.device)

    def _run(self, chunk: Chunk, num_logits: int) -> torch.Tensor:
        sequence = chunk.sequence
        start = 0 if sequence.row_cache is None else chunk.start  # from the start, for models that keep no state
        # State-space models resume from a state only one token at a time.
        stride = 1 if self._is_stateful and start else chunk.end - start
        if self.adapters is not None:
            self.adapters.begin([chunk])
        logits = []
        for first in range(start, chunk.end, stride):
            self.progress()
            ids = sequence.token_ids[first : first + stride]
            with applied_to_chunks(self.rope, [replace(chunk, start=first, end=first + len(ids))]):
                table = sequence.soft_prompt
                embeddings = None if table is None else embed(self._model, ids, [(slice(None), table)])
                part, sequence.row_cache = self._forward(ids, first, sequence.row_cache, num_logits, embeddings)
            logits.append(part)
        joined = torch.cat(logits)
        return joined[joined.shape[0] - num_logits :]

    def run_tokens(self, count: int) -> None:
        self._forward([0] * count, 0, None, 1)

    def _forward(
        self, token_ids: list[int], start: int, cache: object, num_logits: int, embeddings: torch.Tensor | None = None
    ) -> tuple[torch.Tensor, object]:
        """Return the logits of at least the last `num_logits` tokens, [tokens, vocabulary], and the cache."""
        device = self._model.device
        arguments: dict[str, Any] = {self._cache_argument: cache} if cache is not None else {}
        if self._takes_position_ids:
            arguments["position_ids"] = torch.arange(start, start + len(token_ids), device=device)[None]
        if self._takes_logits_to_keep:
            arguments["logits_to_keep"] = max(num_logits, 1)  # 0 would mean all
        if embeddings is None:
            arguments["input_ids"] = torch.tensor([token_ids], device=device)
        else:
            arguments["inputs_embeds"] = embeddings
        output = self._model(use_cache=self._keeps_cache, return_dict=True, **arguments)
        return output.logits[0], output.get(self._cache_argument)

    @torch.inference_mode()
    def _probe(self) -> tuple[int, int]:
        """Return the vocabulary size, and the bytes of a block of tokens in the cache."""
        logits, cache = self._forward([0] * BLOCK_SIZE, 0, None, 1)
        if cache is None:
            logger.warning(
                "%s has no cache: each token requires a pass over all tokens before it", type(self._model).__name__
            )
            self._keeps_cache = False
        layers: list[Any] = cache.layers if isinstance(cache, Cache) else []
        states = [getattr(layer, name, None) for layer in layers for name in ("keys", "values")]
        size = sum(state.nbytes for state in states if isinstance(state, torch.Tensor))
        return logits.shape[-1], size
