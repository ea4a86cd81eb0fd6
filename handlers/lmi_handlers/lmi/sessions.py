"""Requests that start or end sessions, and requests within one: LMI's form of SageMaker's stateful sessions.

https://docs.aws.amazon.com/sagemaker/latest/dg/stateful-sessions.html
"""

import time
from collections.abc import Mapping
from typing import Any

from lmi_core.calls.answer import json_answer
from lmi_core.calls.sessions import Session, Sessions
from lmi_core.errors import InvalidPayload
from lmi_core.handler import Answer, Call
from lmi_core.payloads.payload import quote
from lmi_core.served_model import ServedModel

SESSION_HEADER = "X-Amzn-SageMaker-Session-Id"
NEW_SESSION_HEADER = "X-Amzn-SageMaker-New-Session-Id"
CLOSED_SESSION_HEADER = "X-Amzn-SageMaker-Closed-Session-Id"
REQUEST_TYPE = "requestType"  # of a body that starts or ends a session, instead of asking the model
NEW, CLOSE = "NEW_SESSION", "CLOSE"


def session_answer(body: Mapping[str, Any], call: Call, model: ServedModel) -> Answer:
    """Start or end a session.

    Raise InvalidPayload if the request does not say which, or if there is no such session.
    """
    if others := sorted(body.keys() - {REQUEST_TYPE, "model"}):
        raise InvalidPayload(
            f"`{REQUEST_TYPE}` must be the only field: the session's requests follow. Given also: {others[0]}"
        )
    sessions = _sessions(model, f"`{REQUEST_TYPE}`")
    if body[REQUEST_TYPE] == NEW:
        session = sessions.begin(call.key)
        return _answer(f"Session {session.session_id} created", _headers(session))
    if body[REQUEST_TYPE] != CLOSE:
        raise InvalidPayload(f"`{REQUEST_TYPE}` must be {NEW} or {CLOSE}. Given: {quote(body[REQUEST_TYPE])}")
    session_id = call.headers.get(SESSION_HEADER)
    if session_id is None:
        raise InvalidPayload(f"`{REQUEST_TYPE}` {CLOSE} needs the header {SESSION_HEADER}, which names the session")
    sessions.end(session_id, call.key)
    return _answer(f"Session {session_id} closed", {CLOSED_SESSION_HEADER: session_id})


def session_headers(call: Call, model: ServedModel) -> Mapping[str, str]:
    """Return the headers of an answer within the session that the call's header names or starts.

    Raise InvalidPayload if there is no such session.
    """
    sessions, session_id = _sessions(model, f"the header {SESSION_HEADER}"), call.headers[SESSION_HEADER]
    if session_id == NEW:
        return _headers(sessions.begin(call.key))
    sessions.check(session_id, call.key)
    return {}


def _sessions(model: ServedModel, what: str) -> Sessions:
    if model.sessions is None:
        raise InvalidPayload(f"{what} is for sessions, which option.enable_stateful_sessions=false turns off")
    return model.sessions


def _headers(session: Session) -> dict[str, str]:
    expires = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(session.expires))
    # DJLServing's clients read the session from the header in which they send it, SageMaker from a separate header.
    return dict.fromkeys((NEW_SESSION_HEADER, SESSION_HEADER), f"{session.session_id}; Expires={expires}")


def _answer(result: str, headers: Mapping[str, str]) -> Answer:
    return json_answer({"result": result}, headers=headers)
