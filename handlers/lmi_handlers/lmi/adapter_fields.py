"""The request fields for managing adapters, by DJLServing's names."""

from typing import Annotated, TypeVar

import orjson
from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from lmi_core.calls.call import Call
from lmi_core.payloads.payload import check_payload

MAX_NAME_LENGTH = 255  # bytes of a folder's name, because adapters loaded at the start are folders

P = TypeVar("P", bound=BaseModel)


def _no_path(name: str) -> str:
    if not name.isprintable() or name != name.strip() or name in (".", "..") or set(name) & set("/\\"):
        raise ValueError("must be printable, without / or \\, without leading or trailing spaces, and neither . nor ..")
    return name


Name = Annotated[str, Field(min_length=1, max_length=MAX_NAME_LENGTH), AfterValidator(_no_path)]
Source = Annotated[str, Field(min_length=1)]

SOURCE = (
    "The adapter's folder or an archive of it: a path on the server's host, absolute or relative to the model "
    "directory; an s3:// URL; or the URL of an archive."
)
PIN = "Keep the adapter on the device at all times. At most option.max_loras - 1 adapters can be pinned."


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
        """No further fields: only a model's own script accepts them."""
        return {}


class NewAdapter(AdapterChange):
    """The fields for an adapter to load."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"name": "french", "src": "adapters/french"}]})

    name: Name = Field(
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
        """No pin by the server: the script gets the field with the others."""

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


def read_fields(call: Call, payload_type: type[P]) -> P:
    """Return the fields of the body, overridden by the query's. Raise InvalidPayload if one is invalid."""
    body = call.json_object() if call.body else {}
    return check_payload(body | dict(call.query), payload_type)
