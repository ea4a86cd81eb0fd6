"""A log of how many of a draft model's tokens vLLM accepted."""

import logging
from collections.abc import AsyncGenerator
from contextlib import aclosing

from lmi_plugins.vllm_engine.library import RequestOutput

logger = logging.getLogger(__name__)


class AcceptanceLog:
    """The log of one engine, for `option.record_acceptance_rate`."""

    def __init__(self) -> None:
        self._drafted = 0
        self._accepted = 0

    async def recorded(
        self, request_id: str, outputs: AsyncGenerator[RequestOutput, None]
    ) -> AsyncGenerator[RequestOutput, None]:
        """Yield the outputs unchanged, and log what the last one counts. Closing the generator closes them."""
        async with aclosing(outputs):
            async for output in outputs:
                metrics = output.outputs[0].spec_decode_metrics  # there once the request is finished
                if metrics is not None:
                    accepted = sum(count * steps for count, steps in enumerate(metrics.histogram))
                    self._record(request_id, accepted, metrics.num_draft_tokens)
                yield output

    def _record(self, request_id: str, accepted: int, drafted: int) -> None:
        self._accepted += accepted
        self._drafted += drafted
        if drafted:
            logger.info(
                "Request %s: %d of %d draft tokens accepted (%.0f%%); of all requests so far %.0f%%",
                request_id,
                accepted,
                drafted,
                100 * accepted / drafted,
                100 * self._accepted / self._drafted,
            )
