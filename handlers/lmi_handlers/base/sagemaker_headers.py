"""The names of SageMaker's headers, and the parser of the one for custom attributes."""

import re
from collections.abc import Mapping

ATTRIBUTES_HEADER = "X-Amzn-SageMaker-Custom-Attributes"
TARGET_MODEL_HEADER = "X-Amzn-SageMaker-Target-Model"
MODEL_NAME, MODEL_VERSION = "model_name", "model_version"  # DJLServing's query parameters or headers
# Attributes are `a=b;c=d`. Some clients separate them with commas: a comma is a separator if another attribute follows,
# and otherwise part of the value.
_SEPARATOR = re.compile(r";|,(?=[^;,=]+=)")


def read_attributes(headers: Mapping[str, str]) -> list[tuple[str, str]]:
    """Return the attributes as pairs of name and value, in order; anything except `name=value` is skipped."""
    if ATTRIBUTES_HEADER not in headers:
        return []
    values = [value for name, value in headers.items() if name.lower() == ATTRIBUTES_HEADER.lower()]  # may be repeated
    given = [attribute.partition("=") for value in values for attribute in _SEPARATOR.split(value)]
    return [(name.strip(), value.strip()) for name, separator, value in given if separator and name.strip()]


def find_outside(parameter: str, query: Mapping[str, str], headers: Mapping[str, str]) -> str | None:
    """Return DJLServing's parameter in the query or, without it, in a header."""
    return query.get(parameter) or headers.get(parameter) or None
