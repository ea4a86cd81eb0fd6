"""The adapter that a call names in one of several places."""

import re

import pytest
from multidict import CIMultiDict, MultiDict

from lmi_core.errors import InvalidPayload
from lmi_core.handler import Call
from lmi_handlers.base.adapter_names import ADAPTER_HEADER, take_adapters
from lmi_handlers.fields.request_headers import ATTRIBUTES_HEADER

Pairs = list[tuple[str, str]]


def adapters(body: bytes = b"{}", headers: Pairs | None = None, query: Pairs | None = None) -> tuple[str | None, ...]:
    call = Call({}, CIMultiDict(headers or []), body, "id", query=MultiDict(query or []))
    return take_adapters(call)[1]


@pytest.mark.parametrize(
    ("attributes", "name"),
    [
        ("adapter=a", "a"),
        ("trace=1;adapter=a", "a"),
        ("adapter=a;trace=1", "a"),
        ("trace=1,adapter=a", "a"),
        ("adapter=a,trace=1", "a"),
        ("0c8f-77, adapter = a ; other", "a"),
        ("adapter=a=b", "a=b"),
        ("adapter=a,b", "a,b"),
        ("adapter=", None),
        ("adapter", None),
        ("adapters=a", None),
        ("my-adapter=a", None),
        ("note=adapter", None),
        (";;,", None),
    ],
)
def test_custom_attributes(attributes: str, name: str | None) -> None:
    assert adapters(headers=[(ATTRIBUTES_HEADER.lower(), attributes)]) == ((name,) if name else ())


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (b"{}", ("a",)),
        (b'{"adapters": null}', ("a",)),
        (b'{"adapters": []}', ("a",)),
        (b'{"adapters": "a"}', ("a",)),
        (b'{"adapters": ["a", "a"]}', ("a", "a")),
    ],
)
def test_body_and_another_place_agree(body: bytes, expected: tuple[str, ...]) -> None:
    assert adapters(body, query=[("adapter", "a")]) == expected


@pytest.mark.parametrize(
    ("body", "headers", "query", "message"),
    [
        (
            b'{"adapters": "a"}',
            [(ADAPTER_HEADER, "b")],
            [],
            f"the body's `adapters` and the header {ADAPTER_HEADER} name different adapters: 'a' and 'b'. Name one",
        ),
        (b'{"adapters": ""}', [], [("adapter", "b")], "the query's `adapter` name different adapters: '' and 'b'"),
        (b'{"adapters": ["a", ""]}', [], [("adapter", "a")], "name different adapters: ['a', ''] and 'a'"),
        (
            b"{}",
            [(ADAPTER_HEADER, "a"), (ATTRIBUTES_HEADER, "adapter=b")],
            [("adapter", "a")],
            f"the header {ADAPTER_HEADER} and `adapter` in {ATTRIBUTES_HEADER} name different adapters: 'a' and 'b'",
        ),
        (b"{}", [], [("adapter", "a"), ("adapter", "b")], "name different adapters: 'a' and 'b'"),
        (b"{}", [(ADAPTER_HEADER, "a"), (ADAPTER_HEADER, "b")], [], "name different adapters: 'a' and 'b'"),
        (b"{}", [(ATTRIBUTES_HEADER, "adapter=a;adapter=b")], [], "name different adapters: 'a' and 'b'"),
    ],
)
def test_places_that_differ_are_refused(body: bytes, headers: Pairs, query: Pairs, message: str) -> None:
    with pytest.raises(InvalidPayload, match=re.escape(message)):
        adapters(body, headers, query)


@pytest.mark.parametrize("name", ["adapters", "Adapter", "adapter_id", "lora"])
def test_query_that_names_one_in_another_way_is_refused(name: str) -> None:
    with pytest.raises(InvalidPayload, match=f"the query must name an adapter as `adapter`. Given: '{name}'"):
        adapters(query=[(name, "a")])
    assert adapters(query=[(name, ""), ("exploration", "a")]) == ()


def test_what_is_empty_names_nothing() -> None:
    assert adapters(headers=[(ADAPTER_HEADER, "")], query=[("adapter", "")]) == ()
    assert adapters(b'{"adapters": "a"}', [(ADAPTER_HEADER, "")], [("adapter", "")]) == ("a",)
    assert adapters(b'{"adapters": ""}') == (None,)
