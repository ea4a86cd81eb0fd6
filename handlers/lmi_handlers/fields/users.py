"""The field `user` of OpenAI's requests, which identifies the end user."""

import logging

from lmi_core.handler import Call
from lmi_core.payloads.payload import quote

logger = logging.getLogger(__name__)


def log_user(call: Call, user: str | None) -> None:
    """Log the end user with the request's id, if given."""
    if user is not None:
        logger.info("request %s was sent by user %s", call.request_id, quote(user))
