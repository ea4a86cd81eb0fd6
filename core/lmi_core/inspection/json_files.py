"""JSON files of a model directory, with errors that name the file."""

import json
from pathlib import Path
from typing import Any

from lmi_core.inspection.fault import Fault


def read_json(file: Path) -> dict[str, Any]:
    """Return the object in a JSON file. Raise Fault where it cannot be read, or holds something else."""
    try:
        content = json.loads(file.read_bytes())
    except OSError as error:
        raise Fault(f"{file}: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise Fault(f"{file}: the file is not JSON: {error}") from None
    if not isinstance(content, dict):
        raise Fault(f"{file}: the file must contain a JSON object")
    return content
