"""The fields of requests that register and change models, by DJLServing's names."""

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, TypeVar
from urllib.parse import parse_qsl

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, NonNegativeInt, PositiveInt, field_validator

from lmi_core.calls.call import Call
from lmi_core.configuration.configuration import Setting
from lmi_core.errors import InvalidPayload
from lmi_core.host.devices import parse_devices
from lmi_core.payloads.payload import check_payload, quote

F = TypeVar("F", bound=BaseModel)

FORM = "application/x-www-form-urlencoded"
OPTION = "option."
MAX_NAME_LENGTH = 255  # bytes of a folder's name
MAX_URL = 8192  # characters, enough for signatures; URLs appear in the log and in messages
UNSET = ("-1", -1)  # values in DJLServing's requests


def _unless_unset(value: object) -> object:
    return None if value in UNSET else value


Count = Annotated[PositiveInt | None, BeforeValidator(_unless_unset)]
CountOrNone = Annotated[NonNegativeInt | None, BeforeValidator(_unless_unset)]


class ModelChange(BaseModel):
    """The fields for a registered model."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [{"job_queue_size": 50}]})
    KEYS: ClassVar[dict[str, str]] = {  # of serving.properties, by field
        **{key: key for key in ("job_queue_size", "batch_size", "max_batch_delay", "max_idle_time", "unload_idle")},
        "min_worker": "minWorkers",
        "max_worker": "maxWorkers",
    }

    job_queue_size: Count = Field(None, description="The maximum number of waiting requests.")
    batch_size: Count = Field(None, description="The maximum number of requests in one dynamic batch.")
    max_batch_delay: CountOrNone = Field(
        None, description="The maximum time that a dynamic batch waits for further requests, in milliseconds."
    )
    max_idle_time: Count = Field(
        None,
        description="The time after which an idle process or, with unload_idle, an idle model is stopped, in seconds.",
    )
    unload_idle: bool | None = Field(
        None, description="Unload the model after max_idle_time without requests; the next request loads it again."
    )
    min_worker: CountOrNone = Field(
        None,
        description="The minimum number of engines, or of processes that run a model function; with 0, the last one is "
        "stopped after max_idle_time without requests.",
    )
    max_worker: CountOrNone = Field(
        None,
        description="The maximum number of engines, or of processes that run a model function; 0 shuts the model down.",
    )
    synchronous: bool = Field(True, description="Answer once the change is complete; if false, at once.")
    default: bool = Field(False, description="Make this the default version for requests that name none.")

    @property
    def workers(self) -> int | None:
        """The maximum number of workers; without `max_worker`, as in DJLServing, the minimum or 1."""
        return self.max_worker if self.max_worker is not None or self.min_worker is None else max(1, self.min_worker)

    @property
    def keys(self) -> dict[str, str]:
        """The given values by key of serving.properties."""
        given = {key: getattr(self, name) for name, key in self.KEYS.items()}
        return {key: _format(value) for key, value in given.items() if value is not None}


class NewModel(ModelChange):
    """The fields for a model to register."""

    model_config = ConfigDict(
        extra="forbid", json_schema_extra={"examples": [{"url": "/models/french", "model_name": "french"}]}
    )
    KEYS: ClassVar[dict[str, str]] = {**ModelChange.KEYS, "engine": "engine"}

    url: Annotated[str, Field(min_length=1, max_length=MAX_URL)] = Field(
        description="The location of the model: a model directory or an archive of one (.zip, .tar.gz, .tar) on the "
        "server's host, as a path or file:// URL, the http(s):// URL of an archive, an s3:// URL, or the id of a "
        "model on the Hugging Face hub."
    )
    model_name: str | None = Field(
        None, description="The name of the model in requests; by default the last part of the URL."
    )
    model_version: str | None = Field(None, description="The version of the model.")
    replace: bool = Field(
        False,
        description="Replace the default version, which is removed: engine by engine if both do not fit in memory.",
    )
    engine: str | None = Field(
        None, description="DJLServing's engine: Python, MPI, DeepSpeed or FasterTransformer, which mean the same here."
    )
    device: str | None = Field(
        None,
        description="The device: cpu or -1, gpu0 or 0, several GPUs separated by ;, or * for all. Sets "
        "load_on_devices.",
    )
    gpu_id: str | None = Field(None, description="The same as device.")

    @field_validator("model_version", "model_name")
    @classmethod
    def _plain(cls, name: str | None) -> str | None:
        if name is None or name == "":
            return None
        if not is_name(name):
            raise ValueError(f"must be printable, at most {MAX_NAME_LENGTH} characters long, without / or \\")
        return name

    def overrides(self, options: dict[str, str], source: str) -> tuple[Setting, ...]:
        """Return the keys that override the model's own: those of the fields, and `option.*` keys."""
        device = self.device or self.gpu_id
        try:
            parse_devices(device or "")
        except ValueError as error:
            raise InvalidPayload(f"`device` {error}. Given: {quote(device)}") from None
        devices = {} if device is None else {"load_on_devices": device}
        return tuple(Setting(*item, source) for item in (options | devices | self.keys).items())


def is_name(name: str) -> bool:
    """Return whether a name of a model is valid in paths and headers."""
    return (
        0 < len(name) <= MAX_NAME_LENGTH
        and name.isprintable()
        and not set(name) & set("/\\")
        and name not in (".", "..")
    )


def read_fields(call: Call, fields_type: type[F]) -> tuple[F, dict[str, str]]:
    """Return the fields of the query and the body, in this order of precedence, and separately the `option.*` keys.

    The body is a JSON object or a form. Raise InvalidPayload if a field is invalid.
    """
    body: Mapping[str, Any] = {}
    if call.headers.get("Content-Type", "").startswith(FORM) and not call.body.lstrip().startswith(b"{"):
        body = dict(parse_qsl(call.body.decode(errors="replace")))
    elif call.body.strip():
        body = call.json_object()
    given = {**body, **call.query}
    options = {name: _format(given.pop(name)) for name in list(given) if name.startswith(OPTION)}
    return check_payload(given, fields_type), options


def _format(value: object) -> str:
    """Return a value in the form of serving.properties."""
    return str(value).lower() if isinstance(value, bool) else str(value)
