"""The quantization methods of the installed vLLM, read from its source because importing vLLM takes seconds."""

import ast
from collections.abc import Collection
from importlib.metadata import entry_points
from importlib.util import find_spec
from pathlib import Path

from lmi_core.errors import ConfigurationError
from lmi_core.errors.did_you_mean import did_you_mean

SOURCE = Path("model_executor", "layers", "quantization", "__init__.py")
METHODS = "QuantizationMethods"  # the Literal that vLLM checks the argument against
PLUGINS = ("vllm.general_plugins", "vllm.platform_plugins")  # entry points whose code may register further methods

KNOWN_CODE = ("vllm.", "lmi_plugins.")  # registered there by vLLM and this project, but not methods


def check_method(method: str | None, given: str | None) -> None:
    """Raise ConfigurationError for a quantization method that vLLM lacks, if this can be determined."""
    known = vllm_methods() if method is not None else ()
    lower = str(method).lower()  # vLLM ignores case too
    if known and lower not in known and not _has_plugins():
        raise ConfigurationError(
            f"option.quantize must be a method of vLLM: {', '.join(known)}.{did_you_mean(lower, known)} Given: {given}"
        )


def vllm_methods() -> Collection[str]:
    """Return the names of vLLM's methods; empty if it is not installed, or if its source has another form."""
    spec = find_spec("vllm")
    for folder in spec.submodule_search_locations or () if spec else ():
        try:
            source = ast.parse((Path(folder) / SOURCE).read_text(encoding="utf-8"))
        except (OSError, ValueError, SyntaxError):
            continue
        return _literal(source)
    return ()


def _literal(source: ast.Module) -> Collection[str]:
    for statement in source.body:
        match statement:
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.Subscript(slice=items)) if name == METHODS:
                return [each.value for each in ast.walk(items) if isinstance(each, ast.Constant)]  # type: ignore[misc]
    return ()


def _has_plugins() -> bool:
    """Return whether other packages extend vLLM."""
    return any(not each.value.startswith(KNOWN_CODE) for group in PLUGINS for each in entry_points(group=group))
