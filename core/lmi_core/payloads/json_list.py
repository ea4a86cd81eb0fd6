"""Encoding of long lists of JSON."""

from collections.abc import Iterable, Sequence

import orjson


def json_list(items: Iterable[object]) -> orjson.Fragment:
    """Return a list of separately encoded items as JSON, for `orjson.dumps`.

    Encoding items separately lets other threads run, and the items need not all be in memory.
    """
    return joined_items([orjson.dumps(item) for item in items])


def joined_items(items: Iterable[bytes]) -> orjson.Fragment:
    """Return a list of encoded items; each part may be several of them, or none."""
    return orjson.Fragment(b"[" + b",".join(filter(None, items)) + b"]")


def encoded_items(items: Sequence[object]) -> bytes:
    """Return items of a list, encoded for `joined_items`."""
    return orjson.dumps(items)[1:-1]
