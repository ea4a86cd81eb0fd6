"""DJLServing's routes that manage a model's adapters while it is served."""

from collections.abc import Callable, Mapping
from typing import Annotated, ClassVar, TypeVar

import orjson
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, field_validator

from lmi_core.calls.served_model import ManagedModel, ServedModel, ServedModels
from lmi_core.errors import Forbidden, InvalidPayload, LmiError
from lmi_core.formatter import OutputFormatter
from lmi_core.handler import Answer, Call, Generation, Handler, Route
from lmi_core.hookspecs import hookimpl
from lmi_core.payloads.payload import check_payload
from lmi_core.serving.hosts import is_loopback

INVALID_STATUS = 400
STATUSES = {
    "forbidden": 403,
    "model_not_found": 404,
    "adapter_not_found": 404,
    "adapter_exists": 409,
    "payload_too_large": 413,
    "configuration": 424,  # the adapter's model.py cannot be loaded
    "formatter_failed": 424,  # the model's own function raised
    "model_not_ready": 503,
    "overloaded": 503,
    "backend_unhealthy": 503,
    "internal": 500,
}

MAX_NAME_LENGTH = 255  # bytes of a folder's name, as adapters loaded at the start are folders

P = TypeVar("P", bound=BaseModel)


def _no_path(name: str) -> str:
    if not name.isprintable() or name != name.strip() or name in (".", "..") or set(name) & set("/\\"):
        raise ValueError("must be printable, without / or \\, without leading or trailing spaces, and neither . nor ..")
    return name


Name = Annotated[str, Field(min_length=1, max_length=MAX_NAME_LENGTH), AfterValidator(_no_path)]


class AdapterSource(BaseModel):
    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [{"src": "adapters/french"}]})

    src: Annotated[str, Field(min_length=1)] = Field(
        description="The adapter's folder on the server's host, as an absolute path or relative to the model "
        "directory, or an s3:// URL."
    )
    preload: bool = Field(
        default=True,
        description="Ignored: the adapter is always loaded before the response, which reports any failure.",
    )
    pin: bool = Field(
        default=False, description="Must be false: option.max_cpu_loras sets how many adapters stay in memory."
    )

    @property
    def further(self) -> dict[str, str]:
        """No further fields: only a model's own script takes them."""
        return {}

    @field_validator("pin")
    @classmethod
    def _not_pinned(cls, pin: bool) -> bool:
        if pin:
            raise ValueError(
                "must be false: adapters cannot be pinned; option.max_cpu_loras sets how many stay in memory"
            )
        return pin


class NewAdapter(AdapterSource):
    model_config = ConfigDict(json_schema_extra={"examples": [{"name": "french", "src": "adapters/french"}]})

    name: Name = Field(
        description="The name of the adapter in requests: printable, without / or \\, and neither . nor .."
    )


class ScriptAdapterChange(BaseModel):
    """The fields for a model's own `update_adapter`, which checks them itself."""

    model_config = ConfigDict(extra="allow")

    src: str | None = None  # None: unchanged

    @property
    def further(self) -> dict[str, str]:
        """Further fields as text: strings unchanged, other values as JSON."""
        given = self.model_extra or {}
        return {
            name: value if isinstance(value, str) else orjson.dumps(value).decode() for name, value in given.items()
        }


class ScriptAdapter(ScriptAdapterChange):
    """The fields for a model's own `register_adapter`."""

    name: Name
    src: str


async def list_adapters(call: Call, dispatcher: ServedModels) -> Answer:
    folders = _managed_model(call, dispatcher).adapters.folders
    return _json({"adapters": [{"name": name, "src": str(folder)} for name, folder in folders.items()]})


async def show_adapter(call: Call, dispatcher: ServedModels) -> Answer:
    name = call.path_parameters["name"]
    return _json({"name": name, "src": str(_managed_model(call, dispatcher).adapters.folder(name))})


async def add_adapter(call: Call, dispatcher: ServedModels) -> Answer:
    model = _managed_model(call, dispatcher)
    adapter = _fields(call, ScriptAdapter) if model.adapters.takes_any_fields else _fields(call, NewAdapter)
    with dispatcher.admit(model):
        await model.adapters.add(adapter.name, adapter.src, adapter.further)
    return _json({"status": f"Adapter {adapter.name} registered"})


async def update_adapter(call: Call, dispatcher: ServedModels) -> Answer:
    model, name = _managed_model(call, dispatcher), call.path_parameters["name"]
    any_fields = model.adapters.takes_any_fields
    adapter = _fields(call, ScriptAdapterChange) if any_fields else _fields(call, AdapterSource)
    with dispatcher.admit(model):
        await model.adapters.replace(name, adapter.src, adapter.further)
    return _json({"status": f"Adapter {name} updated"})


async def remove_adapter(call: Call, dispatcher: ServedModels) -> Answer:
    model, name = _managed_model(call, dispatcher), call.path_parameters["name"]
    with dispatcher.admit(model):
        await model.adapters.remove(name)
    return _json({"status": f"Adapter {name} unregistered"})


def _managed_model(call: Call, dispatcher: ServedModels) -> ManagedModel:
    """Return the model in the path. Raise ModelNotFound where it is unknown, Forbidden where the client is remote."""
    model = dispatcher.find(call.path_parameters["model"])
    if not model.server.open_management and not is_loopback(call.peer):
        raise Forbidden(
            f"model {model.name} can only be managed from the server's own host; open_management=true allows other "
            "hosts"
        )
    return model


def _fields(call: Call, payload_type: type[P]) -> P:
    """Return the fields of the body, overridden by the query's. Raise InvalidPayload where one is not valid."""
    body = call.json_object() if call.body else {}
    return check_payload(body | dict(call.query), payload_type)


def _json(content: object, status: int = 200) -> Answer:
    return Answer(status, "application/json", orjson.dumps(content))


class AdaptersHandler(Handler):
    name: ClassVar[str] = "adapters"
    routes: ClassVar[tuple[Route, ...]] = (
        Route("/models/{model}/adapters", "GET", list_adapters, "The model's adapters", guarded=True),
        Route("/models/{model}/adapters", "POST", add_adapter, "Load an adapter", (NewAdapter,)),
        Route("/models/{model}/adapters/{name}", "GET", show_adapter, "One adapter", guarded=True),
        Route("/models/{model}/adapters/{name}", "DELETE", remove_adapter, "Unload an adapter"),
        Route("/models/{model}/adapters/{name}/update", "POST", update_adapter, "Replace an adapter", (AdapterSource,)),
    )

    def model_name(self, path_parameters: Mapping[str, str], headers: Mapping[str, str]) -> str | None:
        return path_parameters["model"]

    def parse(self, call: Call, model: ServedModel) -> Generation:
        raise InvalidPayload(f"{call.path} does not generate text")

    def error(self, error: LmiError, model: ServedModel | None, formatter: OutputFormatter | None) -> Answer:
        status = STATUSES.get(error.kind, INVALID_STATUS)
        return _json({"error": error.message, "code": status}, status)


@hookimpl
def lmi_register_handlers(register: Callable[[type[Handler]], None]) -> None:
    register(AdaptersHandler)
