"""Management of a model's adapters while it is served, as DJLServing has it."""

from collections.abc import Callable, Mapping
from ipaddress import IPv6Address, ip_address
from typing import Annotated, ClassVar, TypeVar

import orjson
from pydantic import BaseModel, ConfigDict, Field, field_validator

from lmi_core.dispatcher import Dispatcher
from lmi_core.errors import Forbidden, InvalidPayload, LmiError
from lmi_core.formatter import OutputFormatter
from lmi_core.handler import Answer, Call, Generation, Handler, Route
from lmi_core.hookspecs import hookimpl
from lmi_core.model import Model
from lmi_core.payload import check_payload, read_object

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

P = TypeVar("P", bound=BaseModel)


class AdapterSource(BaseModel):
    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [{"src": "adapters/french"}]})

    src: Annotated[str, Field(min_length=1)] = Field(
        description="The adapter's folder on the server's host, absolute or in the model directory, or an s3:// URL."
    )
    preload: bool = Field(
        default=True, description="With either value it is loaded before the answer, which tells what is wrong with it."
    )
    pin: bool = Field(default=False, description="Only false: option.max_cpu_loras says how many stay in memory.")

    @field_validator("pin")
    @classmethod
    def _not_pinned(cls, pin: bool) -> bool:
        if pin:
            raise ValueError("must be false: no adapter is pinned, option.max_cpu_loras says how many stay in memory")
        return pin


class NewAdapter(AdapterSource):
    model_config = ConfigDict(json_schema_extra={"examples": [{"name": "french", "src": "adapters/french"}]})

    name: Annotated[str, Field(pattern=r"^[^/\x00-\x1f]+$")] = Field(description="What requests are to call it.")


async def list_adapters(call: Call, dispatcher: Dispatcher) -> Answer:
    folders = _managed_model(call, dispatcher).adapters.folders
    return _json({"adapters": [{"name": name, "src": str(folder)} for name, folder in folders.items()]})


async def show_adapter(call: Call, dispatcher: Dispatcher) -> Answer:
    name = call.path_parameters["name"]
    return _json({"name": name, "src": str(_managed_model(call, dispatcher).adapters.folder(name))})


async def add_adapter(call: Call, dispatcher: Dispatcher) -> Answer:
    model = _managed_model(call, dispatcher)
    adapter = _fields(call, NewAdapter)
    with dispatcher.admit(model):
        await model.adapters.add(adapter.name, adapter.src)
    return _json({"status": f"Adapter {adapter.name} registered"})


async def update_adapter(call: Call, dispatcher: Dispatcher) -> Answer:
    model, name = _managed_model(call, dispatcher), call.path_parameters["name"]
    adapter = _fields(call, AdapterSource)
    with dispatcher.admit(model):
        await model.adapters.replace(name, adapter.src)
    return _json({"status": f"Adapter {name} updated"})


async def remove_adapter(call: Call, dispatcher: Dispatcher) -> Answer:
    model, name = _managed_model(call, dispatcher), call.path_parameters["name"]
    with dispatcher.admit(model):
        await model.adapters.remove(name)
    return _json({"status": f"Adapter {name} unregistered"})


def is_this_host(peer: str) -> bool:
    """Whether the address is a loopback one, also in the form that a socket for both versions of IP gives it."""
    try:
        address = ip_address(peer)
    except ValueError:
        return False
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return (mapped or address).is_loopback


def _managed_model(call: Call, dispatcher: Dispatcher) -> Model:
    """Raises ModelNotFound or Forbidden."""
    model = dispatcher.find(call.path_parameters["model"])
    if not model.plan.server.open_management and not is_this_host(call.peer):
        raise Forbidden(
            f"model {model.name} is managed from its own host only; open_management=true opens it to others"
        )
    return model


def _fields(call: Call, payload_type: type[P]) -> P:
    """Of the body, of the query string, or of both. Raises InvalidPayload."""
    body = read_object(call.body) if call.body else {}
    return check_payload(body | dict(call.query), payload_type)


def _json(content: object, status: int = 200) -> Answer:
    return Answer(status, "application/json", orjson.dumps(content))


class AdaptersHandler(Handler):
    name: ClassVar[str] = "adapters"
    routes: ClassVar[tuple[Route, ...]] = (
        Route("/models/{model}/adapters", "GET", list_adapters, "The model's adapters"),
        Route("/models/{model}/adapters", "POST", add_adapter, "Load an adapter", (NewAdapter,)),
        Route("/models/{model}/adapters/{name}", "GET", show_adapter, "One adapter"),
        Route("/models/{model}/adapters/{name}", "DELETE", remove_adapter, "Unload an adapter"),
        Route("/models/{model}/adapters/{name}/update", "POST", update_adapter, "Replace an adapter", (AdapterSource,)),
    )

    def model_name(self, path_parameters: Mapping[str, str], headers: Mapping[str, str]) -> str | None:
        return path_parameters["model"]

    def parse(self, call: Call, model: Model) -> Generation:
        raise InvalidPayload(f"{call.path} generates nothing")

    def error(self, error: LmiError, model: Model | None, formatter: OutputFormatter | None) -> Answer:
        status = STATUSES.get(error.kind, INVALID_STATUS)
        return _json({"error": error.message, "code": status}, status)


@hookimpl
def lmi_register_handlers(register: Callable[[type[Handler]], None]) -> None:
    register(AdaptersHandler)
