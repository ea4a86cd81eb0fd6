"""The parameters of requests with guides, which vLLM verifies in the server: this takes long for a large guide."""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from lmi_plugins.vllm_engine.library import AsyncLLM, SamplingParams

VERIFIED = "lmi_verified"  # an attribute that is not sent to vLLM's processes
_threads = ThreadPoolExecutor(2, thread_name_prefix="verify-guide")


class GuidedSamplingParams(SamplingParams):
    """vLLM's parameters, which are verified only once; vLLM would verify them again, on the event loop."""

    def verify(self, *given: Any, **named: Any) -> None:
        """Raise vLLM's errors about invalid parameters, unless they were verified before."""
        if VERIFIED not in self.__dict__:
            super().verify(*given, **named)


async def verify_guide(engine: AsyncLLM, parameters: SamplingParams) -> None:
    """Verify parameters outside the event loop, and raise vLLM's errors. xgrammar and llguidance let other threads
    run while they read a guide.
    """
    config = engine.vllm_config
    given = (
        config.model_config,
        config.speculative_config,
        config.structured_outputs_config,
        engine.renderer.tokenizer,
    )
    await asyncio.get_running_loop().run_in_executor(_threads, parameters.verify, *given)
    parameters.__dict__[VERIFIED] = True
