"""What a sequence's tokens were so far, in the forms that logits processors look them up."""

import torch


class TokenCounts:
    """How often each token came, from some place of the sequence on. Brought up to date when it is looked at."""

    def __init__(self, start: int, vocabulary: int, device: torch.device) -> None:
        self._start = self._length = start
        self._counts = torch.zeros(vocabulary, device=device)

    def of(self, token_ids: list[int]) -> torch.Tensor:
        """[vocabulary], float32."""
        if len(token_ids) < self._length:  # tokens were taken back
            self._counts.zero_()
            self._length = self._start
        # Ids beyond the vocabulary stand for a soft prompt.
        new = [token_id for token_id in token_ids[self._length :] if token_id < len(self._counts)]
        if new:
            index = torch.tensor(new, device=self._counts.device)
            self._counts.index_add_(0, index, torch.ones(len(new), device=index.device))
        self._length = len(token_ids)
        return self._counts


class Ngrams:
    """Which tokens came after each run of `size - 1` tokens. Brought up to date when it is looked at."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._length = 0
        self._followers: dict[tuple[int, ...], set[int]] = {}

    def completions(self, token_ids: list[int]) -> set[int]:
        """The tokens that would make the end of the sequence a run that was there before."""
        if len(token_ids) < self._length:  # tokens were taken back
            self._followers.clear()
            self._length = 0
        for place in range(max(self._length, self._size - 1), len(token_ids)):
            before = tuple(token_ids[place - self._size + 1 : place])
            self._followers.setdefault(before, set()).add(token_ids[place])
        self._length = len(token_ids)
        return self._followers.get(tuple(token_ids[len(token_ids) - self._size + 1 :]), set())
