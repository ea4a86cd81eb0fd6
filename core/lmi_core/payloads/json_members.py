"""How much there is to do for a JSON text, found without parsing it."""

import re

# A string, whole or up to the end of the text, so that the search takes linear time; or what begins a value's contents.
STRING_OR_MEMBER = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\\?\Z)|[{\[:]', re.DOTALL)
MEMBERS = (b"{", b"[", b":")


def has_more_members(body: bytes, limit: int) -> bool:
    """Return whether a JSON text has more objects, lists and members of objects than `limit`, together.

    Each takes a hundred times as long to parse and check as a character of a text.
    """
    if sum(map(body.count, MEMBERS)) <= limit:
        return False
    count = 0
    for found in STRING_OR_MEMBER.finditer(body):
        count += body[found.start()] != ord('"')
        if count > limit:
            return True
    return False
