"""The adapters of a call, named in its body, headers or query, and TGI's name of one."""

from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Annotated, Any

from pydantic import AfterValidator, Field

from lmi_core.errors import AdapterNotFound, InvalidPayload
from lmi_core.handler import Call
from lmi_core.payloads.payload import quote
from lmi_core.payloads.plain_text import is_plain_text
from lmi_core.payloads.tolerant_payload import seems_to_name_an_adapter
from lmi_core.script.function.protocol import Content
from lmi_handlers.fields.request_headers import ATTRIBUTES_HEADER, read_attributes

ADAPTER_HEADER = "X-Amzn-SageMaker-Adapter-Identifier"
FIELD = "adapters"  # in a body
TGI_FIELD = "adapter_id"  # in the parameters of TGI's requests
KEY = "adapter"  # in the query, the custom attributes, and a model function's properties

MAX_NAME_LENGTH = 255  # bytes of a folder's name, because adapters loaded at the start are folders


def _check_name(name: str) -> str:
    if not name.isprintable() or name != name.strip() or name in (".", "..") or set(name) & set("/\\"):
        raise ValueError("must be printable, without / or \\, without leading or trailing spaces, and neither . nor ..")
    return name


NewName = Annotated[str, Field(min_length=1, max_length=MAX_NAME_LENGTH), AfterValidator(_check_name)]
AdapterNames = tuple[str | None, ...]  # empty, one for all prompts, or one per prompt; None: the base model
Named = tuple[str, str]  # where an adapter is named, and its name


def take_adapters(call: Call) -> tuple[Call, AdapterNames]:
    """Return the call without its body's `adapters`, and the adapters that it names anywhere.

    Raise InvalidPayload if two places differ.
    """
    named = _in_header(call.headers) if ADAPTER_HEADER in call.headers else []
    for name, value in call.query.items():
        if name == KEY and value:
            named.append((f"the query's `{KEY}`", value))
        elif value and seems_to_name_an_adapter(name):
            raise InvalidPayload(f"the query must name an adapter as `{KEY}`. Given: {quote(name)}")
    elsewhere = named + _in_attributes(call.headers) if ATTRIBUTES_HEADER in call.headers else named
    call, in_body = _take_from_body(call)
    return call, _common_adapters(in_body, elsewhere) if elsewhere else in_body


def with_adapter_attribute(call: Call) -> Call:
    """Return the call with the adapters in its headers as one attribute, for a model function.

    Different names are joined by `;`, which attributes cannot contain.
    """
    names = dict.fromkeys(name for _, name in [*_in_header(call.headers), *_in_attributes(call.headers)])
    return replace(call, attributes={**call.attributes, KEY: ";".join(names)}) if names else call


def check_registered(content: Content, known: Collection[str]) -> None:
    """Raise AdapterNotFound if the query or the form for a model function names an adapter that is not registered."""
    for name, value in content:
        if name == KEY and (asked := value.decode(errors="replace")) not in known:
            raise AdapterNotFound.of(asked, known)


def _in_header(headers: Mapping[str, str]) -> list[Named]:
    """Return the adapters in the adapter header, which may be repeated."""
    values = (value for name, value in headers.items() if name.lower() == ADAPTER_HEADER.lower() and value)
    return [(f"the header {ADAPTER_HEADER}", value) for value in values]


def _in_attributes(headers: Mapping[str, str]) -> list[Named]:
    place = f"`{KEY}` in {ATTRIBUTES_HEADER}"
    return [(place, value) for name, value in read_attributes(headers) if name == KEY and value]


def _take_from_body(call: Call) -> tuple[Call, AdapterNames]:
    payload = object_with(call, FIELD)
    if payload is None or FIELD not in payload:
        return call, ()
    names = _names(payload[FIELD])
    return call.with_json({name: value for name, value in payload.items() if name != FIELD}), names


def _names(adapters: object) -> AdapterNames:
    if adapters is None:
        return ()
    names: list[Any] = adapters if isinstance(adapters, list) else [adapters]
    if not all(name is None or isinstance(name, str) for name in names):
        raise InvalidPayload(
            f"`{FIELD}` must be the name of an adapter, or a list with one for each prompt. Given: {quote(adapters)}"
        )
    return tuple(name or None for name in names)


def _common_adapters(in_body: AdapterNames, elsewhere: Iterable[Named]) -> AdapterNames:
    """Return the body's adapters, or the one named elsewhere. Raise InvalidPayload if both are set and differ."""
    agreed, first = in_body, f"the body's `{FIELD}`"
    for place, name in elsewhere:
        if not agreed:
            agreed, first = (name,), place
        elif set(agreed) != {name}:
            raise InvalidPayload(
                f"{first} and {place} name different adapters: {quote(_plain(agreed))} and {quote(name)}. Name one"
            )
    return agreed


def _plain(names: AdapterNames) -> str | list[str]:
    """Return the names in the form used in bodies, with "" for the base model."""
    plain = [name or "" for name in names]
    return plain[0] if len(plain) == 1 else plain


def with_adapters(call: Call) -> Call:
    """Return the call with TGI's `adapter_id` moved to `adapters`. Raise InvalidPayload if both are set and differ."""
    payload = object_with(call, TGI_FIELD) or {}
    parameters = payload.get("parameters")
    if not isinstance(parameters, dict) or TGI_FIELD not in parameters:
        return call
    kept = {name: value for name, value in parameters.items() if name != TGI_FIELD}
    adapter = _named_adapter(payload.get("adapters"), parameters[TGI_FIELD])
    return call.with_json({**payload, "parameters": kept, **adapter})


def object_with(call: Call, name: str) -> dict[str, Any] | None:
    """Return the body's object if it may contain the name; None for others, whose faults the dialect reports."""
    if not (name.encode() in call.body or b"\\u" in call.body) or is_plain_text(call.headers):
        return None
    with suppress(InvalidPayload):
        payload = call.json()
        return payload if isinstance(payload, dict) else None
    return None


def _named_adapter(named: object, adapter_id: object) -> dict[str, str]:
    """Return the `adapters` field to add, if needed. Raise InvalidPayload if the two differ."""
    if not isinstance(adapter_id, str | None):
        raise InvalidPayload(f"`parameters.adapter_id` must be the name of an adapter. Given: {quote(adapter_id)}")
    if not adapter_id or named in (adapter_id, [adapter_id]):
        return {}
    if named:
        raise InvalidPayload(
            f"`adapters` and `parameters.adapter_id` name different adapters: {quote(named)} and {quote(adapter_id)}."
            " Name one"
        )
    return {"adapters": adapter_id}
