"""What a client says of a call in SageMaker's header for a caller's own attributes."""

import re
from collections.abc import Iterator, Mapping

ATTRIBUTES_HEADER = "X-Amzn-SageMaker-Custom-Attributes"
# Attributes are `a=b;c=d`. Clients write commas too: one separates where another attribute follows, and otherwise
# belongs to the value.
_SEPARATOR = re.compile(r";|,(?=[^;,=]+=)")


def named_attributes(headers: Mapping[str, str]) -> list[tuple[str, str]]:
    """Return the attributes of a call by name, in their order; what is no `name=value` has no name to be found by."""
    given = [attribute.partition("=") for header in _values(headers) for attribute in _SEPARATOR.split(header)]
    return [(name.strip(), value.strip()) for name, separator, value in given if separator and name.strip()]


def _values(headers: Mapping[str, str]) -> Iterator[str]:
    """Yield the header's values, as it may come several times."""
    return (value for name, value in headers.items() if name.lower() == ATTRIBUTES_HEADER.lower())
