"""A smaller model that drafts the engine's next tokens."""

from collections.abc import Sequence as Items
from dataclasses import replace

import msgspec
import torch
from transformers import PreTrainedModel

from lmi_core.errors import ConfigurationError
from lmi_plugins.torch_engine.messages.requests import EngineOptions
from lmi_plugins.torch_engine.model.attention import UnsupportedAttention
from lmi_plugins.torch_engine.model.loading import context_length, load_model
from lmi_plugins.torch_engine.model.model_runner import ModelRunner
from lmi_plugins.torch_engine.model.runner_choice import choose_paged_runner
from lmi_plugins.torch_engine.sampling.processing import process
from lmi_plugins.torch_engine.sampling.sampler import Sampler
from lmi_plugins.torch_engine.sampling.warpers import SAMPLING
from lmi_plugins.torch_engine.sequences.draft import Draft
from lmi_plugins.torch_engine.sequences.sequence import Sequence
from lmi_plugins.torch_engine.sequences.step_batch import Chunk, StepBatch


class DraftModel:
    """A draft model with its own cache, addressed by the same block tables as the engine's."""

    def __init__(
        self, options: EngineOptions, name: str, model: PreTrainedModel, block_size: int, max_length: int
    ) -> None:
        """Load the model `name`; raise ConfigurationError if the two models do not match."""
        draft = load_model(msgspec.structs.replace(options, model=name, revision=None))
        sizes = [each.config.get_text_config().vocab_size for each in (model, draft)]
        if sizes[0] != sizes[1]:
            raise ConfigurationError(
                f"speculative_draft_model: {name} has a vocabulary of {sizes[1]} tokens, but the model has {sizes[0]}"
            )
        context = context_length(draft.config, None)
        if context < max_length:
            raise ConfigurationError(
                f"speculative_draft_model: the context of {name} has {context} tokens, but the model's has "
                f"{max_length}; reduce it with max_model_len"
            )
        try:
            self._runner = choose_paged_runner(draft, max_length, options, block_size)
        except UnsupportedAttention as reason:
            raise ConfigurationError(
                f"speculative_draft_model: {name} cannot run with a paged cache: {reason}"
            ) from reason
        if not self._runner.rewinds:
            raise ConfigurationError(
                f"speculative_draft_model: {name} cannot roll back tokens, as rejected drafts require"
            )
        self.block_bytes = self._runner.block_bytes
        self.allocate = self._runner.allocate

    def draft(
        self, chunks: Items[Chunk], lengths: dict[Sequence, int], new_blocks: list[int], sampler: Sampler
    ) -> dict[Sequence, Draft]:
        """Process the chunks up to their ends, and draft the next `lengths[sequence]` tokens, which are also
        appended to the sequences.
        """
        behind = [replace(chunk, start=chunk.sequence.num_draft_computed_tokens) for chunk in chunks]
        logits = self._run(sorted(behind, key=len), new_blocks)
        drafts = {sequence: Draft([]) for sequence in lengths}
        unfinished = [chunk for chunk in chunks if chunk.sequence in lengths]
        while unfinished:
            sequences = [chunk.sequence for chunk in unfinished]
            self._append([logits[sequence] for sequence in sequences], sequences, drafts, sampler)
            unfinished = [
                replace(chunk, start=chunk.sequence.num_draft_computed_tokens, end=len(chunk.sequence.token_ids))
                for chunk in unfinished
                if len(drafts[chunk.sequence]) < lengths[chunk.sequence]
            ]
            logits = self._run(unfinished, []) if unfinished else {}
        return drafts

    def _run(self, chunks: list[Chunk], new_blocks: list[int]) -> dict[Sequence, torch.Tensor]:
        """Return the logits, [vocabulary], for the next token of each fully processed sequence."""
        batch = StepBatch(chunks)
        logits = self._runner.run(batch, new_blocks)
        for chunk in chunks:
            chunk.sequence.num_draft_computed_tokens = chunk.end
        return {sequence: logits[row] for sequence, row in batch.next_token_rows.items()}

    @staticmethod
    def _append(
        logits: list[torch.Tensor], sequences: list[Sequence], drafts: dict[Sequence, Draft], sampler: Sampler
    ) -> None:
        rows = torch.stack(logits).float()
        ids = rows.argmax(-1)
        # With a seed, the most likely token is drafted, so that the text does not depend on the drafts.
        drawn = [row for row, each in enumerate(sequences) if not each.parameters.greedy and each.generator is None]
        if drawn:
            drawing = [sequences[row] for row in drawn]
            probabilities = process(rows[drawn], drawing, SAMPLING).softmax(-1)
            ids[drawn] = sampler.draw(probabilities, drawing)
            for sequence, row in zip(drawing, probabilities, strict=True):
                drafts[sequence].probabilities.append(row)
        for sequence, token_id in zip(sequences, ids.tolist(), strict=True):
            sequence.token_ids.append(token_id)
            drafts[sequence].token_ids.append(token_id)


def load_draft_model(
    options: EngineOptions, model: PreTrainedModel, runner: ModelRunner, max_length: int
) -> DraftModel | None:
    """Load the draft model in the options, if any. Raise ConfigurationError if that fails."""
    name = options.speculative_draft_model
    if name is None:
        return None
    if not runner.rewinds:
        kind = type(model).__name__
        raise ConfigurationError(f"speculative_draft_model requires a model that can roll back tokens: {kind} cannot")
    return DraftModel(options, name, model, runner.block_size, max_length)
