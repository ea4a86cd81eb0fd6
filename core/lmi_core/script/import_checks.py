"""Detection of imports in a model's Python files that cannot work here, without running the files."""

import ast
import importlib
import importlib.util
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from lmi_core.errors import ConfigurationError
from lmi_core.errors.did_you_mean import did_you_mean
from lmi_core.script.djl_names.modules import MISSING_MODULES, MISSING_PACKAGES, PACKAGE, present_modules, why_missing
from lmi_core.script.environment import requirements_warnings

CAUGHT = {"ImportError", "ModuleNotFoundError", "Exception", "BaseException"}


class Import(NamedTuple):
    """One name that a statement imports; `name` is None for the module itself."""

    path: Path
    line: int
    statement: str
    module: str
    name: str | None
    certain: bool  # it runs on every import of the file


def require_imports(script: Path, own_environment: bool = False) -> None:
    """Raise ConfigurationError for imports that fail when the file, or one in the same folder, is imported."""
    lines = [line for each in _imports(script) if each.certain and (line := _complaint(each, own_environment))]
    if lines:
        raise ConfigurationError("\n".join(lines))


def import_warnings(script: Path, own_environment: bool = False) -> list[str]:
    """Return a line for each import in a function or condition that fails if it is reached."""
    found = [each for each in _imports(script) if not each.certain]
    return [f"{line} (only when it is reached)" for each in found if (line := _complaint(each, own_environment))]


def _complaint(found: Import, own_environment: bool) -> str | None:
    top, reason = found.module.partition(".")[0], None
    engine = next((name for name in (found.module, top) if name in MISSING_PACKAGES), None)
    if top == PACKAGE:
        reason = _missing_name(found.module, found.name)
    elif engine is not None and not own_environment and importlib.util.find_spec(engine) is None:
        reason = MISSING_PACKAGES[engine]
    return f"{found.path.name}:{found.line}: `{found.statement}` cannot work: {reason}" if reason else None


def _missing_name(module: str, name: str | None) -> str | None:
    if module not in present_modules():
        return why_missing(module)
    if name in (None, "*") or hasattr(loaded := importlib.import_module(module), str(name)):
        return None
    submodule = f"{module}.{name}"
    if submodule in present_modules():
        return None
    if submodule in MISSING_MODULES:
        return MISSING_MODULES[submodule]
    public = getattr(loaded, "__all__", ())
    return f"{module} has no `{name}`.{did_you_mean(str(name), public)} It has: {', '.join(public)}"


def _imports(script: Path) -> Iterator[Import]:
    """Yield the imports of the file, and of the files in the same folder that it imports."""
    directory = script.parent
    if not script.is_file():
        return
    pending, seen = [script], {script}
    while pending:
        path = pending.pop()
        try:
            tree = ast.parse(path.read_bytes(), str(path))
        except (SyntaxError, ValueError):
            continue  # the import itself will report it, with a traceback
        for found in _walk(tree.body, path, certain=True):
            yield found
            for other in _files(directory, found):
                if other not in seen:
                    seen.add(other)
                    pending.append(other)


def _walk(statements: list[ast.stmt], path: Path, certain: bool) -> Iterator[Import]:
    """Yield the imports that are not expected to fail."""
    for statement in statements:
        if isinstance(statement, ast.Import):
            for alias in statement.names:
                yield Import(path, statement.lineno, ast.unparse(statement), alias.name, None, certain)
        elif isinstance(statement, ast.ImportFrom):
            for alias in statement.names:
                module = "." * statement.level + (statement.module or "")
                yield Import(path, statement.lineno, ast.unparse(statement), module, alias.name, certain)
        elif isinstance(statement, ast.Try):
            yield from _walk(statement.body, path, certain) if not _catches(statement) else ()
            for block in (*(handler.body for handler in statement.handlers), statement.orelse):
                yield from _walk(block, path, certain=False)
            yield from _walk(statement.finalbody, path, certain)
        elif isinstance(statement, ast.If) and "TYPE_CHECKING" in ast.unparse(statement.test):
            yield from _walk(statement.orelse, path, certain)
        elif isinstance(statement, ast.With | ast.ClassDef):
            yield from _walk(statement.body, path, certain)
        else:
            for block in (getattr(statement, name, []) for name in ("body", "orelse")):
                yield from _walk(block, path, certain=False)


def _catches(statement: ast.Try) -> bool:
    """Return whether one of the clauses handles a failing import."""
    for handler in statement.handlers:
        kinds = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
        if any(kind is None or ast.unparse(kind).rpartition(".")[2] in CAUGHT for kind in kinds):
            return True
    return False


def _files(directory: Path, found: Import) -> list[Path]:
    """Return the files of the model directory that the import reads."""
    base = found.path.parent if found.module.startswith(".") else directory
    parts = [part for part in found.module.lstrip(".").split(".") if part]
    modules = [parts[: length + 1] for length in range(len(parts))]
    modules += [[*parts, found.name]] if found.name else []
    candidates = [base.joinpath(*module) for module in modules]
    files = [path for each in candidates for path in (each.with_suffix(".py"), each / "__init__.py")]
    return [path for path in files if path.is_file()]


def script_warnings(directory: Path, name: str, enabled: bool) -> list[str]:
    """Return warnings of what a script needs and the server lacks; `enabled` means that it has its own environment."""
    script = directory / name
    return [*import_warnings(script, enabled), *requirements_warnings(directory, script, enabled)]
