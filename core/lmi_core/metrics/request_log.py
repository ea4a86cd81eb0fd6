"""The log line of each request's times and token counts, for `log_request_metric`."""

import logging

from lmi_core.metrics.request_record import RequestRecord

logger = logging.getLogger(__name__)


def log_request(record: RequestRecord, seconds: float) -> None:
    """Log the times and token counts of a request, even if it failed or its client disconnected."""
    first = record.time_to_first_token
    generated = ""
    if record.num_sequences:
        latency = "no token" if first is None else f"first token after {1000 * first:.1f} ms"
        generated = f"{record.generated_tokens} generated tokens, {latency}, "
    logger.info(
        "request %s: %d prompt tokens, %sall after %.1f ms",
        record.request_id,
        record.prompt_tokens,
        generated,
        1000 * seconds,
    )
