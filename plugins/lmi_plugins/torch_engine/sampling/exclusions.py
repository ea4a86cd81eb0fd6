"""Logits processors that exclude tokens."""

from abc import abstractmethod
from collections.abc import Iterable
from collections.abc import Sequence as Items

import torch

from lmi_plugins.torch_engine.sequences.logits_processor import LogitsProcessor, ProcessedSequence
from lmi_plugins.torch_engine.sequences.processor_state import Ngrams


class Exclusion(LogitsProcessor):
    """A processor that gives certain tokens a score of minus infinity."""

    @abstractmethod
    def banned_ids(self, sequence: ProcessedSequence) -> Iterable[int]:
        """Return ids that cannot be the sequence's next token."""

    def process(self, scores: torch.Tensor, sequences: Items[ProcessedSequence]) -> torch.Tensor:
        pairs = [(row, token_id) for row, sequence in enumerate(sequences) for token_id in self.banned_ids(sequence)]
        pairs = [pair for pair in pairs if pair[1] < scores.shape[1]]  # larger ids stand for a soft prompt
        if not pairs:
            return scores
        rows, ids = torch.tensor(pairs, device=scores.device).unbind(1)
        return scores.index_put((rows, ids), scores.new_tensor(float("-inf")))


class NoRepeatNgram(Exclusion):
    """Exclusion of tokens that would complete an n-gram for the second time.

    Those in the prompt count, as in transformers.
    """

    def banned_ids(self, sequence: ProcessedSequence) -> Iterable[int]:
        state = sequence.state
        if state.ngrams is None:
            state.ngrams = Ngrams(sequence.parameters.no_repeat_ngram_size)
        return state.ngrams.completions(sequence.token_ids)


class BadSequences(Exclusion):
    """Exclusion of tokens that would complete a bad sequence of token ids, which may begin in the prompt.

    The end-of-sequence token alone is never bad, as in transformers.
    """

    def banned_ids(self, sequence: ProcessedSequence) -> Iterable[int]:
        ids = sequence.token_ids
        for *before, last in sequence.parameters.bad_sequences:
            if before:
                if ids[-len(before) :] == before:
                    yield last
            elif last not in sequence.eos_token_ids:
                yield last


class BadTexts(LogitsProcessor):
    """Exclusion of tokens that would complete a bad text, of which there are many if the text is short."""

    def process(self, scores: torch.Tensor, sequences: Items[ProcessedSequence]) -> torch.Tensor:
        found = [(row, ids) for row, sequence in enumerate(sequences) for ids in _completing(sequence)]
        if not found:
            return scores
        scores = scores.clone()
        for row, ids in found:
            scores[row].index_fill_(0, ids.to(scores.device), float("-inf"))
        return scores


class MinLength(Exclusion):
    """Exclusion of end-of-sequence and stop tokens while fewer than `min_length` tokens are generated."""

    def banned_ids(self, sequence: ProcessedSequence) -> Iterable[int]:
        parameters = sequence.parameters
        if len(sequence.token_ids) - sequence.prompt_length >= parameters.min_length:
            return
        if not parameters.ignore_end:
            yield from sequence.eos_token_ids
        for stop in parameters.stop_token_sequences:
            if len(stop) == 1:
                yield stop[0]


def _completing(sequence: ProcessedSequence) -> Iterable[torch.Tensor]:
    """Return the ids of tokens that would complete a bad text, in non-empty arrays."""
    ban = sequence.state.text_ban
    assert ban is not None, "the engine must create it with the sequence"
    for ids in (ban.always, ban.completing(sequence.token_ids, sequence.prompt_length)):
        if ids is not None and len(ids):
            yield torch.from_numpy(ids)
