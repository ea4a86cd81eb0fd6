"""The tools of a request that the client runs, where it offers tools of servers beside them."""

import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeVar

from lmi_core.errors import InvalidPayload

P = TypeVar("P")


class OfferedTools(NamedTuple):
    """The tools that the client runs among a request's tools, and what is left out."""

    own: list[Any]
    places: list[int]  # of these in the request
    left_out: tuple[str, ...]  # names for the header of ignored fields

    def placed(self, error: InvalidPayload) -> InvalidPayload:
        """Return an error about one of the tools with its place in the request."""
        return InvalidPayload(re.sub(r"`tools\.(\d+)", lambda at: f"`tools.{self.places[int(at[1])]}", error.message))


def take_offered(
    given: Mapping[str, Any], kind: str, take: Callable[[Mapping[str, Any]], tuple[P, tuple[str, ...]]]
) -> tuple[P, tuple[str, ...]]:
    """Return the payload that `take` makes of a request without the tools of other types, and the ignored fields.

    Coding agents offer searches, images and shells of the hosted service beside their own tools, and go on without
    them. A request that offers nothing else asks for what no server here has: `take` gets it as it is.
    """
    offered = _offered(given.get("tools"), kind)
    if offered is None:
        return take(given)
    try:
        payload, ignored = take({**given, "tools": offered.own})
    except InvalidPayload as error:
        raise offered.placed(error) from None
    return payload, (*offered.left_out, *ignored)


def _offered(given: object, kind: str) -> OfferedTools | None:
    types = [tool.get("type") if isinstance(tool, dict) else None for tool in given] if isinstance(given, list) else []
    others = tuple(f"tools.{each}" for each in types if isinstance(each, str) and each != kind)
    places = [place for place, each in enumerate(types) if not isinstance(each, str) or each == kind]
    if not isinstance(given, list) or not others or not places:
        return None
    return OfferedTools([given[place] for place in places], places, others)
