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
FIELD = "requestType"
NEW, CLOSE = "NEW_SESSION", "CLOSE"


def is_session_call(body: Mapping[str, Any]) -> bool:
    """Return whether the body starts or ends a session, instead of asking the model."""
    return FIELD in body


def session_answer(body: Mapping[str, Any], call: Call, model: ServedModel) -> Answer:
    """Start or end a session.

    Raise InvalidPayload if the request does not say which, or if there is no such session.
    """
    if others := sorted(body.keys() - {FIELD, "model"}):
        raise InvalidPayload(
            f"`{FIELD}` must be the only field: the session's requests follow. Given also: {others[0]}"
        )
    sessions = _sessions(model, f"`{FIELD}`")
    if body[FIELD] == NEW:
        session = sessions.begin(call.key)
        return _answer(f"Session {session.session_id} created", _headers(session))
    if body[FIELD] != CLOSE:
        raise InvalidPayload(f"`{FIELD}` must be {NEW} or {CLOSE}. Given: {quote(body[FIELD])}")
    session_id = call.headers.get(SESSION_HEADER)
    if session_id is None:
        raise InvalidPayload(f"`{FIELD}` {CLOSE} needs the header {SESSION_HEADER}, which names the session")
    sessions.end(session_id, call.key)
    return _answer(f"Session {session_id} closed", {CLOSED_SESSION_HEADER: session_id})


def session_headers(call: Call, model: ServedModel) -> Mapping[str, str]:
    """Return the headers of an answer within a session, which the call's header may start.

    Raise InvalidPayload if there is no such session.
    """
    session_id = call.headers.get(SESSION_HEADER)
    if session_id is None:
        return {}
    sessions = _sessions(model, f"the header {SESSION_HEADER}")
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
