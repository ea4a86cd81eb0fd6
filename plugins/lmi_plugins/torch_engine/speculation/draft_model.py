"""A smaller model that guesses what the engine's model will say."""

from collections.abc import Sequence as Items

import msgspec
import torch
from transformers import PreTrainedModel

from lmi_core.errors import ConfigurationError
from lmi_plugins.torch_engine.model.attention import UnsupportedAttention
from lmi_plugins.torch_engine.model.loading import context_length, load_model
from lmi_plugins.torch_engine.model.paged_runner import PagedRunner
from lmi_plugins.torch_engine.sampling.processing import SAMPLING, process
from lmi_plugins.torch_engine.sampling.sampler import Sampler
from lmi_plugins.torch_engine.sequence import Chunk, Sequence
from lmi_plugins.torch_engine.speculation.draft import Draft
from lmi_plugins.torch_engine.worker.messages import EngineOptions


class DraftModel:
    """Its keys and values lie in a cache of its own, in the same blocks as those of the engine's model."""

    def __init__(self, options: EngineOptions, name: str, model: PreTrainedModel, max_length: int) -> None:
        """Raises ConfigurationError where the two models do not fit together."""
        draft = load_model(msgspec.structs.replace(options, model=name, revision=None))
        sizes = [each.config.get_text_config().vocab_size for each in (model, draft)]
        if sizes[0] != sizes[1]:
            raise ConfigurationError(
                f"speculative_draft_model: {name} has a vocabulary of {sizes[1]} tokens, the model itself one of"
                f" {sizes[0]}"
            )
        longest = context_length(draft, None)
        if longest < max_length:
            raise ConfigurationError(
                f"speculative_draft_model: the context of {name} holds {longest} tokens, that of the model itself"
                f" {max_length}; max_model_len can shorten it"
            )
        try:
            self._runner = PagedRunner(draft, max_length)
        except UnsupportedAttention as reason:
            raise ConfigurationError(f"speculative_draft_model: {name} cannot run in blocks: {reason}") from reason
        self.block_bytes = self._runner.block_bytes
        self.allocate = self._runner.allocate

    def guess(
        self, chunks: Items[Chunk], lengths: dict[Sequence, int], new_blocks: list[int], sampler: Sampler
    ) -> dict[Sequence, Draft]:
        """Read up to the ends of the chunks, and guess so many of the tokens after them.

        The guesses are appended to the sequences too.
        """
        behind = [Chunk(chunk.sequence, chunk.sequence.draft_computed, chunk.end) for chunk in chunks]
        logits = self._run(sorted(behind, key=len), new_blocks)
        drafts = {sequence: Draft([]) for sequence in lengths}
        going_on = list(lengths)
        while going_on:
            self._append([logits[sequence] for sequence in going_on], going_on, drafts, sampler)
            going_on = [sequence for sequence in going_on if len(drafts[sequence]) < lengths[sequence]]
            last = [Chunk(sequence, sequence.draft_computed, len(sequence.token_ids)) for sequence in going_on]
            logits = self._run(last, []) if last else {}
        return drafts

    def _run(self, chunks: list[Chunk], new_blocks: list[int]) -> dict[Sequence, torch.Tensor]:
        """The logits [vocabulary] after the end of each sequence that is read to its end."""
        logits = self._runner.run(chunks, new_blocks)
        for chunk in chunks:
            chunk.sequence.draft_computed = chunk.end
        return dict(zip([chunk.sequence for chunk in chunks if chunk.samples], logits, strict=True))

    @staticmethod
    def _append(
        logits: list[torch.Tensor], sequences: list[Sequence], drafts: dict[Sequence, Draft], sampler: Sampler
    ) -> None:
        rows = torch.stack(logits).float()
        ids = rows.argmax(-1)
        # With a seed the likeliest token is guessed: then the text does not depend on the guesses.
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


def load_draft_model(options: EngineOptions, model: PreTrainedModel, paged: bool, max_length: int) -> DraftModel | None:
    """The one that the options name; raises ConfigurationError."""
    name = options.speculative_draft_model
    if name is None:
        return None
    if not paged:
        kind = type(model).__name__
        raise ConfigurationError(f"speculative_draft_model needs a model that runs in blocks: {kind} does not")
    return DraftModel(options, name, model, max_length)
