"""The field `user` of OpenAI's requests, by which clients say for whom they ask."""

import logging

from lmi_core.handler import Call
from lmi_core.payloads.payload import shown

logger = logging.getLogger(__name__)


def log_user(call: Call, user: str | None) -> None:
    """Log who asks, beside the request's id, where the client says it."""
    if user is not None:
        logger.info("request %s was sent by user %s", call.request_id, shown(user))
