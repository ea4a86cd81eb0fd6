"""The packages that a model's code needs: its `requirements.txt`."""

import shlex
from pathlib import Path

from lmi_core.script.djl_names.modules import why_missing

REQUIREMENTS = "requirements.txt"


def missing_package_hint(error: BaseException, directory: Path) -> str:
    """Return how to get the package that an import did not find; "" for any other error."""
    missing: BaseException | None = error
    while missing is not None and not isinstance(missing, ModuleNotFoundError):
        missing = missing.__cause__ or missing.__context__
    if missing is None or missing.name is None:
        return ""
    if (reason := why_missing(missing.name)) is not None:
        return f"\n{missing.name} is not available: {reason}"
    package = missing.name.partition(".")[0]
    if (directory / REQUIREMENTS).is_file():
        command = f"pip install -r {shlex.quote(str(directory / REQUIREMENTS))}"
        return f"\nThe package {package} is not installed: set option.enable_venv=true, or run: {command}"
    return f"\nThe package {package} is not installed. Run: pip install {package}"
