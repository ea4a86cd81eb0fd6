"""One packed forward pass over all chunks of a step, for models with a replaceable attention function."""

from typing import ClassVar

import torch
from transformers import AttentionInterface, PreTrainedModel

from lmi_plugins.torch_engine.cache.block_pool import BLOCK_SIZE
from lmi_plugins.torch_engine.cache.kv_cache import PagedCache
from lmi_plugins.torch_engine.model import attention
from lmi_plugins.torch_engine.model.attention import AttentionStep, LayoutProbe, UnsupportedAttention, running
from lmi_plugins.torch_engine.model.decode_graphs import Capture, DecodeGraphs
from lmi_plugins.torch_engine.model.model_runner import ModelRunner
from lmi_plugins.torch_engine.model.own_attention import replace_own_attention, restore_own_attention
from lmi_plugins.torch_engine.model.packed_linear import pack_linears
from lmi_plugins.torch_engine.model.paged_step import PagedStep, WorkingCopy
from lmi_plugins.torch_engine.model.paged_support import check_model, check_windows, fix_scales, takes_positions
from lmi_plugins.torch_engine.model.rope_by_length import RopeByLength, applied_to_chunks
from lmi_plugins.torch_engine.model.soft_prompt import embed
from lmi_plugins.torch_engine.model.state_layers import replace_state_layers
from lmi_plugins.torch_engine.model.transformers_internals import attention_implementation, set_attention_implementation
from lmi_plugins.torch_engine.sequences.step_batch import StepBatch


class PagedRunner(ModelRunner):
    """A runner of packed batches over a paged cache. Only the attention of decoding sequences is padded."""

    paged = True
    cache_type: ClassVar[type[PagedCache]] = PagedCache
    _cache: PagedCache

    def __init__(
        self,
        model: PreTrainedModel,
        max_length: int,
        block_size: int = BLOCK_SIZE,
        capture: Capture | None = None,
    ) -> None:
        """Replace the model's attention; if that fails, raise UnsupportedAttention and leave the model unchanged.

        With `capture`, decode steps are captured if the model allows it.
        """
        check_model(model, max_length)
        self.rope = RopeByLength.of(model, max_length)
        if self.rope is not None and not self.rope.modules:
            raise UnsupportedAttention("its rotary embedding depends on the sequence length in an unsupported way")
        AttentionInterface.register(attention.NAME, attention.paged_attention)
        before = attention_implementation(model)
        set_attention_implementation(model, attention.NAME)
        self._model, self._takes_positions = model, takes_positions(model)
        self.state_layers = replace_state_layers(model)
        replace_own_attention(model)
        try:
            probe = self._probe(max_length)
        except Exception as error:
            set_attention_implementation(model, before)
            restore_own_attention(model)
            for layer in self.state_layers:
                layer.restore()
            raise UnsupportedAttention(f"a trial run failed: {error}") from error
        fix_scales(model)
        self._shapes, self._options = probe.shapes, probe.options
        self.state_bytes = sum(
            state.nbytes for layer in self.state_layers for state in layer.tensors(probe.states[layer.index])
        )
        self.rewinds = not self.state_layers
        self._capture = capture if self.rope is None and not self.state_layers else None
        self._graphs: DecodeGraphs | None = None
        self.block_size = block_size
        self.block_bytes = self.cache_type.block_bytes(self._shapes, self.dtype, block_size)
        self._optimize(probe)

    @property
    def dtype(self) -> torch.dtype:
        """The type of the computation and of the cache."""
        return self._model.dtype

    def _optimize(self, probe: LayoutProbe) -> None:
        """Replace what can run faster, given the record of a trial run."""
        pack_linears(self._model, lambda: self.run_tokens(2))

    def _new_cache(self, blocks: int) -> PagedCache:
        return PagedCache(self._shapes, blocks, self._model.dtype, self._model.device, self.block_size)

    def allocate(self, blocks: int) -> None:
        self._cache = self._new_cache(blocks)
        # At most as much memory as one layer's share of the cache, because more blocks than exist may be read together.
        self._copy = WorkingCopy(self._cache, blocks // max(len(self._shapes), 1), self._model.device)
        if self._capture is not None:
            # Gathering a layer takes at most half of its share of the cache.
            self._graphs = DecodeGraphs(
                self._forward, self._cache, blocks // 2, self._model.dtype, self._model.device, self._capture
            )

    def copy(self, copies: dict[int, int]) -> None:
        self._cache.copy(copies)

    def run(self, batch: StepBatch, new_blocks: list[int]) -> torch.Tensor:
        device = self._model.device
        if new_blocks:
            self._cache.clear(torch.tensor(new_blocks, device=device))
        if self.adapters is not None:
            self.adapters.begin(batch.chunks)
        if self._graphs is not None and (logits := self._graphs.run(batch)) is not None:
            self.progress()
            self._copy.forget()
            return logits
        step = PagedStep(
            batch,
            self._cache,
            self._copy,
            self._model.dtype,
            device,
            self.progress,
            self.state_layers,
            None if self.adapters is None else self.adapters.begin,
        )
        with applied_to_chunks(self.rope, batch.chunks):
            return self._forward(
                torch.tensor([batch.token_ids], device=device),
                torch.tensor([batch.positions], device=device),
                torch.tensor(batch.logits_indices, dtype=torch.long, device=device),
                step,
                self._embed(batch),
            )

    def run_tokens(self, count: int) -> None:
        ids = torch.zeros(1, count, dtype=torch.long, device=self._model.device)
        positions = torch.arange(count, device=ids.device)
        self._forward(ids, positions[None], positions[-1:], LayoutProbe())

    def _embed(self, batch: StepBatch) -> torch.Tensor | None:
        """Return the embeddings of a batch with virtual tokens; None for any other."""
        soft_prompts = [
            (rows, chunk.sequence.soft_prompt)
            for chunk, rows in zip(batch.chunks, batch.token_rows, strict=True)
            if chunk.sequence.soft_prompt is not None
        ]
        return embed(self._model, batch.token_ids, soft_prompts) if soft_prompts else None

    def _forward(
        self,
        ids: torch.Tensor,
        positions: torch.Tensor,
        logits_indices: torch.Tensor,
        step: AttentionStep,
        embeddings: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """Return the logits of the tokens with these indices, [indices, vocabulary]; ids and positions: [1, tokens]."""
        with running(step):
            output = self._model(
                input_ids=ids if embeddings is None else None,
                inputs_embeds=embeddings,
                use_cache=False,
                logits_to_keep=logits_indices,
                **({"position_ids": positions} if self._takes_positions else {}),
            )
        logits: torch.Tensor = output.logits[0]
        return logits

    @torch.inference_mode()
    def _probe(self, max_length: int) -> LayoutProbe:
        """Find the KV sizes and attention options of every layer by a forward pass."""
        probe = LayoutProbe(checks=True)
        ids = torch.zeros(1, 2, dtype=torch.long, device=self._model.device)
        positions = torch.arange(2, device=ids.device)[None]
        logits = self._forward(ids, positions, positions[0, 1:], probe)
        if logits.shape[0] != 1 or not (probe.shapes or probe.states):
            raise UnsupportedAttention("the model does not use transformers' attention interface")
        if any(layer.index not in probe.states for layer in self.state_layers):
            raise UnsupportedAttention("it does not use some of its layers that carry a state")
        check_windows(self._model, probe.windows, max_length)
        if not self._takes_positions and any(options.slopes is None for options in probe.options.values()):
            raise UnsupportedAttention("it does not accept position_ids")
        others = torch.tensor([[1, 0]], device=ids.device)
        after_another = self._forward(others, positions, positions[0, 1:], LayoutProbe())
        # Types of 2 bytes round differently in other company, most of all where experts add up.
        rounding = 1e-2 if logits.dtype == torch.float32 else 1e-1
        if not torch.allclose(logits, after_another, atol=rounding * float(logits.abs().max()), equal_nan=True):
            raise UnsupportedAttention("some of its layers mix tokens in their own way")
        return probe
