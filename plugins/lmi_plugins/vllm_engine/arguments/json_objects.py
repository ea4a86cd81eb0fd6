"""Engine arguments whose text is a JSON object. Imports no vLLM."""

import json
from collections.abc import Mapping
from typing import Any

from lmi_core.errors import ConfigurationError


def json_object(arguments: Mapping[str, str], name: str) -> dict[str, Any]:
    """Return an argument's object, empty where it is not given. Raise ConfigurationError where it is none."""
    text = arguments.get(name, "{}")
    try:
        value = json.loads(text)
    except ValueError as error:
        raise ConfigurationError(f"option.{name} must be a JSON object: {error}. Given: {text}") from None
    if not isinstance(value, dict):
        raise ConfigurationError(f"option.{name} must be a JSON object. Given: {text}")
    return value
