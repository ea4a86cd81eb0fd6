"""vLLM's fault with seeds on CPUs: there before it is mended."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from vllm.v1.worker.cpu_model_runner import CPUModelRunner

from tests.plugins.vllm_server import VllmServer

STEP = 256  # tokens at most that the engine computes at once
RUNNER: Any = CPUModelRunner


def test_discarding_a_seeded_sample_ends_the_engine_until_that_is_mended() -> None:
    """Fails when vLLM has mended it."""
    batch = SimpleNamespace(num_reqs=1, generators={0: torch.Generator()})
    discarded = SimpleNamespace(np=np.array([True]))
    runner = SimpleNamespace(input_batch=batch, discard_request_mask=discarded, use_async_scheduling=True)
    with pytest.raises(RuntimeError, match="does not use offset"):
        RUNNER._bookkeeping_sync(runner, None, None, None, None, 0)


@pytest.mark.asyncio(loop_scope="session")
@pytest.mark.timeout(300)
async def test_a_seeded_answer_to_a_prompt_in_several_steps(vllm: VllmServer, caplog: pytest.LogCaptureFixture) -> None:
    """The second time, the cache holds the prompt, and the rest is computed in one step."""
    prompt = " ".join(f"{number} stories" for number in range(200, 320))
    assert len(vllm.encode(prompt)) > 2 * STEP
    sampled = {"do_sample": True, "temperature": 2.0, "seed": 5, "max_new_tokens": 8}
    first, second = [(await vllm.ask(prompt, **sampled))["generated_text"] for _ in range(2)]
    assert first == second
    assert not [record for record in caplog.records if "died" in record.getMessage()]
