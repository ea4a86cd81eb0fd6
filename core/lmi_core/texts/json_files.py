"""JSON files of a model directory, with errors that name the file."""

import json
from pathlib import Path
from typing import Any

from lmi_core.errors.fault import Fault, unreadable


def read_json(file: Path) -> dict[str, Any]:
    """Return the object in a JSON file. Raise Fault if it cannot be read, or contains anything else."""
    content = read_value(file)
    if not isinstance(content, dict):
        raise Fault(f"{file}: the file must contain a JSON object")
    return content


def read_value(file: Path) -> Any:
    """Return the value in a JSON file. Raise Fault if it cannot be read."""
    try:
        return json.loads(file.read_bytes())
    except OSError as error:
        raise Fault(unreadable(error, file)) from None
    except (ValueError, RecursionError) as error:
        raise Fault(f"{file}: the file is not JSON: {error}") from None
