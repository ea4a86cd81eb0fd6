"""Encoding of long lists of JSON."""

from collections.abc import Iterable, Mapping, Sequence

import orjson


def json_list(items: Iterable[object]) -> orjson.Fragment:
    """Return a list of separately encoded items as JSON for `orjson.dumps`.

    Encoding items separately lets other threads run, and the items need not all be in memory.
    """
    return join_items([orjson.dumps(item) for item in items])


def join_items(items: Iterable[bytes]) -> orjson.Fragment:
    """Return a JSON list of encoded items; each part may contain several items or none."""
    return orjson.Fragment(b"[" + b",".join(filter(None, items)) + b"]")


def encode_items(items: Sequence[object]) -> bytes:
    """Return items of a list, encoded for `join_items`."""
    return orjson.dumps(items)[1:-1]


def object_with_lists(content: Mapping[str, object], lists: Mapping[str, Iterable[bytes]]) -> bytes:
    """Return a JSON object with these members and long lists of encoded items.

    Other threads can run at the same time, because `bytes.join` lets them, unlike orjson and `+`.
    """
    members = [orjson.dumps(content)[1:-1]]
    for name, items in lists.items():
        members.append(b"".join([orjson.dumps(name), b":[", b",".join(filter(None, items)), b"]"]))
    return b"".join([b"{", b",".join(filter(None, members)), b"}"])
