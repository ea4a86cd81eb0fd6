"""llama.cpp for `tests.benchmarks.bench_cpu`: it runs in the environment of `make llama-cpp`."""

import os
import sys
from typing import Any

from tests.benchmarks.rounds import MAX_LENGTH, MAX_STREAMS, NEW_TOKENS, serve


class Runner:
    """A model with a KV cache of the largest case. The batch has the size of one step of the torch engine's prompts."""

    def __init__(self, file: str) -> None:
        import llama_cpp

        self._api: Any = llama_cpp
        self._model = llama_cpp.llama_model_load_from_file(file.encode(), llama_cpp.llama_model_default_params())
        assert self._model, file
        parameters = llama_cpp.llama_context_default_params()
        parameters.n_ctx, parameters.n_seq_max = MAX_STREAMS * (MAX_LENGTH + NEW_TOKENS), MAX_STREAMS
        parameters.n_threads = parameters.n_threads_batch = len(os.sched_getaffinity(0))
        self._context = llama_cpp.llama_init_from_model(self._model, parameters)
        self._size = llama_cpp.llama_n_batch(self._context)
        self._batch = llama_cpp.llama_batch_init(self._size, 0, 1)
        self._greedy = llama_cpp.llama_sampler_init_greedy()

    def run(self, prompts: list[list[int]]) -> None:
        """Generate greedily for all prompts at once."""
        self._api.llama_memory_clear(self._api.llama_get_memory(self._context), True)
        latest: list[int] = []
        at_once = self._size // len(prompts[0])
        for begin in range(0, len(prompts), at_once):
            group = prompts[begin : begin + at_once]
            latest += self._decode({begin + place: prompt for place, prompt in enumerate(group)}, 0)
        for step in range(NEW_TOKENS - 1):
            latest = self._decode({place: [each] for place, each in enumerate(latest)}, len(prompts[0]) + step)

    def _decode(self, tokens: dict[int, list[int]], position: int) -> list[int]:
        """Add tokens to sequences, and return the next token of each."""
        batch, ends = self._batch, []
        batch.n_tokens = 0
        for sequence, ids in tokens.items():
            for offset, token_id in enumerate(ids):
                place = batch.n_tokens
                batch.token[place], batch.pos[place] = token_id, position + offset
                batch.n_seq_id[place], batch.seq_id[place][0] = 1, sequence
                batch.logits[place] = offset == len(ids) - 1
                batch.n_tokens += 1
            ends.append(batch.n_tokens - 1)
        assert self._api.llama_decode(self._context, batch) == 0
        return [self._api.llama_sampler_sample(self._greedy, self._context, end) for end in ends]


if __name__ == "__main__":
    serve(lambda: Runner(sys.argv[1]).run)
