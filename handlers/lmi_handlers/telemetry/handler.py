"""The handler of the route that changes the log level."""

import logging
from typing import ClassVar, Literal

from typing_extensions import TypedDict

from lmi_core.calls.access import Access
from lmi_core.calls.answer import json_answer
from lmi_core.handler import Answer, AnswerForm, Call, Route
from lmi_core.logs.level import change_log_level
from lmi_core.served_model import ServedModels
from lmi_handlers.base.plain_handler import PlainHandler

logger = logging.getLogger(__name__)

DEFAULT_LEVEL = "info"  # DJLServing's
LevelChanged = TypedDict("LevelChanged", {"status": Literal["OK"], "level": str})


async def set_level(call: Call, models: ServedModels) -> Answer:
    """Set the log level of the server and its workers. Raise InvalidParameter for an unknown one."""
    level = change_log_level(call.query.get("level") or DEFAULT_LEVEL)
    logger.warning("request %s set the log level to %s", call.request_id, level)
    return json_answer({"status": "OK", "level": level})


class LoggingHandler(PlainHandler):
    """The server's log."""

    name: ClassVar[str] = "logging"
    summary: ClassVar[str] = "The log"
    routes: ClassVar[tuple[Route, ...]] = (
        Route(
            "/server/logging",
            "POST",
            set_level,
            "Change the log level",
            access=Access.OPERATORS,
            answers=(AnswerForm(LevelChanged),),
        ),
    )
