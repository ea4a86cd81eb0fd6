"""Encoding of long lists of JSON."""

from collections.abc import Iterable

import orjson


def json_list(items: Iterable[object]) -> orjson.Fragment:
    """Return a list as JSON, for `orjson.dumps`, whose items were encoded one by one.

    Unlike that of one long list, the encoding lets other threads run, and the items need not all be in memory.
    """
    return joined_items([orjson.dumps(item) for item in items])


def joined_items(items: Iterable[bytes]) -> orjson.Fragment:
    """Return a list of encoded items."""
    return orjson.Fragment(b"[" + b",".join(items) + b"]")
