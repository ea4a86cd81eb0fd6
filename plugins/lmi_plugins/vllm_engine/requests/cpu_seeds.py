"""Seeds in vLLM's builds for CPUs, fixed for prompts that are computed in several steps.

After each step but the last, vLLM discards a sample and sets the request's generator back by its offset. Generators on
CPUs have no offset, and the resulting error ends the engine. To be removed once vLLM has mended it, which makes a test
of this file fail. https://github.com/vllm-project/vllm/blob/v0.32.0/vllm/v1/worker/gpu_model_runner.py
"""

from typing import Any

import numpy as np


def mend_seeds() -> None:
    """Patch the sampling in this process, if vLLM is a CPU build."""
    from vllm.platforms import current_platform

    if not current_platform.is_cpu():
        return
    from vllm.v1.worker.cpu_model_runner import CPUModelRunner

    runner: Any = CPUModelRunner
    draw, keep_books = runner._sample, runner._bookkeeping_sync

    def sample(self: Any, *arguments: Any) -> Any:
        """Draw discarded samples without their requests' generators, whose states therefore stay the same."""
        generators = self.input_batch.generators
        discarded = np.flatnonzero(self.discard_request_mask.np[: self.input_batch.num_reqs]).tolist()
        self.unused_generators = {row: generators.pop(row) for row in discarded if row in generators}
        return draw(self, *arguments)

    def bookkeeping_sync(self: Any, *arguments: Any) -> Any:
        books = keep_books(self, *arguments)
        self.input_batch.generators.update(self.unused_generators)
        return books

    runner._sample, runner._bookkeeping_sync = sample, bookkeeping_sync
