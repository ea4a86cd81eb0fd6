"""Ollama's routes that change the set of models, which a server of model directories does not support."""

import orjson
from pydantic import BaseModel, ConfigDict, Field

from lmi_core.calls.access import Access
from lmi_core.calls.answer import json_answer
from lmi_core.errors import InvalidPayload, ModelNotFound
from lmi_core.handler import Answer, Call, Route, inquiry
from lmi_core.payloads.tolerant_payload import TolerantPayload, take_known
from lmi_core.served_model import ServedModels
from lmi_handlers.ollama.answers import LINES, PULLED, REFUSED
from lmi_handlers.ollama.names import served_name

DIRECTORIES = "models are served from the directories given to `lmi serve`"
FORBIDDEN = 403
JSON = "application/json"


class NamedModel(TolerantPayload):
    """A request about one model, by either name of the field."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"model": "model"}]})

    model: str | None = Field(None, description="A model of `GET /api/tags`.")
    name: str | None = Field(None, description="The older name of `model`.")

    @property
    def required_name(self) -> str:
        """The model's name. Raise InvalidPayload without one."""
        name = self.model or self.name
        if not name:
            raise InvalidPayload("`model` is required")
        return name


class CopyRequest(TolerantPayload):
    model_config = ConfigDict(json_schema_extra={"examples": [{"source": "model", "destination": "other"}]})

    source: str | None = Field(None, description="The model to copy.")
    destination: str | None = Field(None, description="The name of the copy.")


class PullRequest(NamedModel):
    stream: bool | None = Field(None, description="Return a line for each step. Default: true.")
    insecure: bool | None = Field(None, description="Ignored: nothing is downloaded.")


async def pull(call: Call, dispatcher: ServedModels) -> Answer:
    """Answer that a served model exists, for clients that pull first. Raise ModelNotFound for others."""
    payload, ignored = take_known(call.json_object(), PullRequest, strict=False)
    try:
        served_name(payload.required_name, dispatcher)
    except ModelNotFound as error:
        raise ModelNotFound(f"{error.message}: this server does not download models; {DIRECTORIES}") from None
    if payload.stream is False:
        return json_answer({"status": "success"}, ignored=ignored)
    lines = [orjson.dumps({"status": status}) + b"\n" for status in ("pulling manifest", "success")]
    return Answer(200, LINES, b"".join(lines), ignored)


def _refusing(path: str, method: str, what: str, *payloads: type[BaseModel]) -> Route:
    async def refuse(call: Call, dispatcher: ServedModels) -> Answer:
        return json_answer({"error": f"this server {what}: {DIRECTORIES}"}, FORBIDDEN)

    return Route(path, method, refuse, "Refused", payloads, guarded=False, access=Access.CLIENTS, answers=REFUSED)


# Not protected, because they change nothing.
ROUTES = (
    inquiry("/api/pull", pull, "Succeeds for a model that is served", (PullRequest,), *PULLED),
    _refusing("/api/push", "POST", "uploads no models", NamedModel),
    _refusing("/api/create", "POST", "creates no models", NamedModel),
    _refusing("/api/copy", "POST", "copies no models", CopyRequest),
    _refusing("/api/delete", "DELETE", "deletes no models"),
)
