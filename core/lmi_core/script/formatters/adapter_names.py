"""The adapter that a call names outside its body, as LMI's clients do it."""

import re
from collections.abc import Iterable, Iterator, Mapping

from lmi_core.calls.call import Call
from lmi_core.errors import InvalidPayload
from lmi_core.payloads.payload import shown
from lmi_core.payloads.tolerant_payload import seems_to_name_an_adapter

ADAPTER_HEADER = "X-Amzn-SageMaker-Adapter-Identifier"
ATTRIBUTES_HEADER = "X-Amzn-SageMaker-Custom-Attributes"
KEY = "adapter"  # of the query and of the custom attributes
# Attributes are `a=b;c=d`. Clients write commas too: one separates where another attribute follows, and otherwise
# belongs to the value.
_SEPARATOR = re.compile(r";|,(?=[^;,=]+=)")


def named_adapters(call: Call) -> list[tuple[str, str]]:
    """Every place outside the body that names an adapter, and the name; the places in the order of precedence.

    Raises InvalidPayload where the query seems to name one in a way that is not taken.
    """
    _check_query(call.query)
    return [
        *((f"the header {ADAPTER_HEADER}", name) for name in _header(call.headers, ADAPTER_HEADER)),
        *((f"the query's `{KEY}`", value) for name, value in call.query.items() if name == KEY and value),
        *((f"`{KEY}` in {ATTRIBUTES_HEADER}", name) for name in _in_attributes(call.headers)),
    ]


def _check_query(query: Mapping[str, str]) -> None:
    for name, value in query.items():
        if name != KEY and value and seems_to_name_an_adapter(name):
            raise InvalidPayload(f"the query names an adapter as `{KEY}`. Given: {shown(name)}")


def agreed_adapters(in_body: tuple[str | None, ...], elsewhere: Iterable[tuple[str, str]]) -> tuple[str | None, ...]:
    """The body's adapters, or the one that is named elsewhere. Raises InvalidPayload where two places differ."""
    agreed, first = in_body, "the body's `adapters`"
    for place, name in elsewhere:
        if not agreed:
            agreed, first = (name,), place
        elif set(agreed) != {name}:
            raise InvalidPayload(
                f"{first} and {place} name different adapters: {shown(_plain(agreed))} and {shown(name)}. Name one"
            )
    return agreed


def _plain(names: tuple[str | None, ...]) -> str | list[str]:
    """The names as a body has them, where "" is the model itself."""
    plain = [name or "" for name in names]
    return plain[0] if len(plain) == 1 else plain


def _header(headers: Mapping[str, str], wanted: str) -> Iterator[str]:
    """The values of a header that may come several times."""
    return (value for name, value in headers.items() if name.lower() == wanted.lower() and value)


def _in_attributes(headers: Mapping[str, str]) -> Iterator[str]:
    for attributes in _header(headers, ATTRIBUTES_HEADER):
        for attribute in _SEPARATOR.split(attributes):
            name, _, value = attribute.partition("=")
            if name.strip() == KEY and value.strip():
                yield value.strip()
