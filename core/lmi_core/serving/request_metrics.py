"""Logging of each request's times and token counts, for `log_request_metric`."""

import logging
import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing

from lmi_core.generation import GenerationStep
from lmi_core.request import ValidRequest

logger = logging.getLogger(__name__)


async def logged(
    request_id: str, requests: Sequence[ValidRequest], steps: AsyncGenerator[GenerationStep, None]
) -> AsyncGenerator[GenerationStep, None]:
    """Yield the steps as they are, and log a line at their end, also if the request failed or was left."""
    begun = time.perf_counter()
    first_token = "no token"
    generated = 0
    try:
        async with aclosing(steps):
            async for step in steps:
                if step.tokens and not generated:
                    first_token = f"first token after {_milliseconds_since(begun)} ms"
                generated += len(step.tokens)
                yield step
    finally:
        logger.info(
            "request %s: %d prompt tokens, %d generated tokens, %s, all after %s ms",
            request_id,
            sum(len(request.prompt_ids) for request in requests),
            generated,
            first_token,
            _milliseconds_since(begun),
        )


def _milliseconds_since(begun: float) -> str:
    return f"{1000 * (time.perf_counter() - begun):.1f}"
