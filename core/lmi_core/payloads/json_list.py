"""Encoding of long lists of JSON."""

from collections.abc import Iterable

import orjson


def json_list(items: Iterable[object]) -> orjson.Fragment:
    """Return a list of separately encoded items as JSON, for `orjson.dumps`.

    Encoding items separately lets other threads run, and the items need not all be in memory.
    """
    return joined_items([orjson.dumps(item) for item in items])


def joined_items(items: Iterable[bytes]) -> orjson.Fragment:
    """Return a list of encoded items."""
    return orjson.Fragment(b"[" + b",".join(items) + b"]")
