"""DJLServing's routes for managing a model's adapters at run time."""

from typing import Annotated, ClassVar, Literal, NotRequired, TypeVar

import orjson
from pydantic import BaseModel, ConfigDict, Field
from typing_extensions import TypedDict

from lmi_core.calls.answer import json_answer
from lmi_core.errors import AdapterNotFound, InvalidPayload
from lmi_core.handler import Answer, AnswerForm, Call, Route
from lmi_core.payloads.payload import check_payload
from lmi_core.served_model import ManagedModel, ServedModel, ServedModels
from lmi_handlers.base.adapter_names import NewName
from lmi_handlers.base.plain_handler import Page, PlainHandler, operator_route, refusals
from lmi_handlers.base.statuses import Statuses

P = TypeVar("P", bound=BaseModel)
SOURCE = (
    "The adapter's folder or an archive of it: a path on the server's host, absolute or relative to the model "
    "directory; an s3:// URL; or the URL of an archive."
)
PIN = "Keep the adapter on the device at all times. At most option.max_loras - 1 adapters can be pinned."
ALIAS_HEADER = "X-Amzn-SageMaker-Adapter-Alias"  # the adapter's name for users of SageMaker
MODEL = "model"  # a parameter in the path
# `configuration`: the adapter's model.py cannot be loaded.
STATUSES = Statuses(adapter_exists=409, configuration=424, generation_failed=400, generation_timeout=400, aborted=400)


Source = Annotated[str, Field(min_length=1)]


class AdapterChange(BaseModel):
    """The fields for a loaded adapter."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [{"pin": True}]})

    src: Source | None = Field(
        default=None,
        description=f"{SOURCE} Default: the current one, which is read again unless only `pin` is given.",
    )
    preload: bool = Field(
        default=True,
        description="Ignored: the adapter is always loaded before the response, which reports any failure.",
    )
    pin: bool | None = Field(default=None, description=f"{PIN} Default: unchanged.")

    @property
    def further(self) -> dict[str, str]:
        """An empty dictionary, because only a model's own script accepts further fields."""
        return {}


class NewAdapter(AdapterChange):
    """The fields for an adapter to load."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"name": "french", "src": "adapters/french"}]})

    name: NewName = Field(
        description="The name of the adapter in requests: printable, without / or \\, and neither . nor .."
    )
    src: Source = Field(description=SOURCE)
    pin: bool = Field(default=False, description=PIN)


class ScriptAdapterChange(BaseModel):
    """The fields for a model's own `update_adapter`, which checks them itself."""

    model_config = ConfigDict(extra="allow")

    src: str | None = None  # None: unchanged

    @property
    def pin(self) -> None:
        """None, because the script gets this field with the others."""

    @property
    def further(self) -> dict[str, str]:
        """Further fields as text: strings unchanged, other values as JSON."""
        given = self.model_extra or {}
        return {
            name: value if isinstance(value, str) else orjson.dumps(value).decode() for name, value in given.items()
        }


class ScriptAdapter(ScriptAdapterChange):
    """The fields for a model's own `register_adapter`."""

    name: NewName
    src: str


def read_fields(call: Call, payload_type: type[P]) -> P:
    """Return the fields of the body, overridden by the query's. Raise InvalidPayload if one is invalid."""
    body = call.json_object() if call.body else {}
    return check_payload(body | dict(call.query), payload_type)


class ListedAdapter(TypedDict):
    """An adapter, its source, and whether it is pinned; all are loaded before their first request."""

    name: str
    src: str
    preload: Literal[True]
    pin: bool


ListedAdapters = TypedDict("ListedAdapters", {"adapters": list[ListedAdapter], "nextPageToken": NotRequired[str]})
Status = TypedDict("Status", {"status": str})  # the result of a change


def listed_adapters(model: ServedModel) -> list[ListedAdapter]:
    """Return a model's adapters, even while it is idle."""
    pinned = model.pinned_adapters
    return [
        {"name": name, "src": str(folder), "preload": True, "pin": name in pinned}
        for name, folder in model.adapter_folders.items()
    ]


async def list_adapters(call: Call, served: ServedModels) -> Answer:
    found, page = listed_adapters(_find_model(call, served)), check_payload(call.query, Page)
    end = page.next_page_token + page.limit
    listed = ListedAdapters(adapters=found[page.next_page_token : end])
    if end < len(found):
        listed["nextPageToken"] = str(end)
    return json_answer(listed)


async def show_adapter(call: Call, served: ServedModels) -> Answer:
    model, name = _find_model(call, served), call.path_parameters["name"]
    if name not in model.adapter_folders:
        raise AdapterNotFound.of(name, model.adapter_folders)
    return json_answer(next(each for each in listed_adapters(model) if each["name"] == name))


async def add_adapter(call: Call, served: ServedModels) -> Answer:
    model = _find_model(call, served)
    any_fields = model.adapters.takes_any_fields
    adapter = read_fields(call, ScriptAdapter) if any_fields else read_fields(call, NewAdapter)
    with served.admit(model):
        await served.wake(model)
        await model.adapters.add(adapter.name, adapter.src, adapter.further, pin=bool(adapter.pin))
    return _status_answer(call, adapter.name, "registered")


async def update_adapter(call: Call, served: ServedModels) -> Answer:
    model, name = _find_model(call, served), call.path_parameters["name"]
    any_fields = model.adapters.takes_any_fields
    adapter = read_fields(call, ScriptAdapterChange) if any_fields else read_fields(call, AdapterChange)
    with served.admit(model):
        await served.wake(model)
        await model.adapters.replace(name, adapter.src, adapter.further, pin=adapter.pin)
    return _status_answer(call, name, "updated")


async def remove_adapter(call: Call, served: ServedModels) -> Answer:
    model, name = _find_model(call, served), call.path_parameters["name"]
    with served.admit(model):
        await served.wake(model)
        await model.adapters.remove(name)
    return _status_answer(call, name, "unregistered")


def _find_model(call: Call, served: ServedModels) -> ManagedModel:
    """Return the model in the path, or the only model. Raise ModelNotFound, or InvalidPayload if there are several."""
    if MODEL not in call.path_parameters and len(served.models) > 1:
        names = ", ".join(sorted(served.models))
        raise InvalidPayload(
            f"{call.path} is for servers of one model; here name one of {names}, as in /models/{{model}}/adapters"
        )
    return served.find(call.path_parameters.get(MODEL))


def _status_answer(call: Call, name: str, what: str) -> Answer:
    return json_answer({"status": f"Adapter {call.headers.get(ALIAS_HEADER) or name} {what}"})


LISTED = (AnswerForm(ListedAdapters),)
SHOWN = (AnswerForm(ListedAdapter),)
DONE = (AnswerForm(Status),)


def _below(path: str) -> tuple[Route, ...]:
    """Return the routes of the adapters of one model."""
    one = f"{path}/{{name}}"
    return (
        operator_route(path, "GET", list_adapters, "The model's adapters", LISTED),
        operator_route(path, "POST", add_adapter, "Load an adapter", DONE, NewAdapter),
        operator_route(one, "GET", show_adapter, "One adapter", SHOWN),
        operator_route(one, "DELETE", remove_adapter, "Unload an adapter", DONE),
        operator_route(f"{one}/update", "POST", update_adapter, "Replace or pin an adapter", DONE, AdapterChange),
    )


class AdaptersHandler(PlainHandler):
    name: ClassVar[str] = "adapters"
    summary: ClassVar[str] = "DJLServing's routes that manage adapters"
    statuses: ClassVar[Statuses] = STATUSES
    errors: ClassVar[tuple[AnswerForm, ...]] = refusals(STATUSES)
    routes: ClassVar[tuple[Route, ...]] = (*_below("/models/{model}/adapters"), *_below("/adapters"))
