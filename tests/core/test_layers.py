"""Imports go down only, between packages and between rooms, and an engine is imported when it is created."""

import ast
import re
import subprocess
import sys
from collections.abc import Container, Iterable, Iterator, Mapping
from pathlib import Path

import pytest

from lmi_handlers.dialects import DIALECTS

ROOT = Path(__file__).parents[2]
PACKAGES = {
    "lmi_core": ROOT / "core" / "lmi_core",
    "lmi_schemas": ROOT / "core" / "lmi_schemas",
    "lmi_handlers": ROOT / "handlers" / "lmi_handlers",
    "djl_python": ROOT / "handlers" / "djl_python",
    "lmi_plugins": ROOT / "plugins" / "lmi_plugins",
    "lmi": ROOT / "handlers" / "lmi",
}
ENGINES = {"torch", "transformers", "vllm"}
WEB = {"aiohttp", "uvloop"}
WEB_CLIENTS = {"core/lmi_core/remote/web/requests.py": {"aiohttp"}}  # its client, in the download process alone
LIGHT_FOLDERS = [
    PACKAGES["lmi_core"],
    PACKAGES["lmi_schemas"],
    PACKAGES["lmi_handlers"],
    PACKAGES["djl_python"],
    PACKAGES["lmi"],
    PACKAGES["lmi_plugins"] / "backends",
    PACKAGES["lmi_plugins"] / "formatters",
]

ARCHITECTURE = ROOT / "docs" / "explanation" / "architecture.md"
ORDERED = [  # packages whose rooms have an order
    "core/lmi_core",
    "handlers/lmi_handlers",
    "plugins/lmi_plugins",
    "plugins/lmi_plugins/torch_engine",
]
DIALECT_ROOMS = sorted({dialect.target.split(".")[1] for dialect in DIALECTS})
MAX_DEPTH = 4  # of a folder, the package counted

IMPORTS_NO_ENGINE = """\
import sys
import lmi_core.plugins.loading
lmi_core.plugins.loading.load_plugins()
print(*({"torch", "transformers", "vllm"} & sys.modules.keys()))
"""


def sources(folder: Path) -> list[Path]:
    found = sorted(folder.rglob("*.py"))
    assert found, folder
    return found


def tree(source: Path) -> ast.Module:
    return ast.parse(source.read_text(encoding="utf-8"), source)


def imported(nodes: Iterable[ast.AST]) -> set[str]:
    """The top-level packages that these statements import."""
    modules: set[str] = set()
    for node in nodes:
        if isinstance(node, ast.Import):
            modules |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module is not None:
            modules.add(node.module)
    return {module.partition(".")[0] for module in modules}


def run_at_import(node: ast.AST) -> Iterator[ast.AST]:
    """The statements that importing a module runs: none in functions, none for type checkers."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            continue
        if isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test):
            continue
        yield child
        yield from run_at_import(child)


def module_name(source: Path, root: Path) -> str:
    """The name by which a source below the root is imported."""
    parts = source.relative_to(root).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imported_modules(module: str, code: ast.Module, *, is_package: bool, known: Container[str]) -> set[str]:
    """The known modules that a module imports anywhere: at its top, in functions, and for type checkers only."""
    found: set[str] = set()
    for node in ast.walk(code):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = imported_from(module, node, is_package=is_package)
            found |= {name if (name := f"{base}.{alias.name}") in known else base for alias in node.names}
    return {name for name in found if name in known and name != module}


def imported_from(module: str, node: ast.ImportFrom, *, is_package: bool) -> str:
    """The absolute name of what a `from ... import` names."""
    if node.level == 0:
        return node.module or ""
    parents = module.split(".")
    kept = parents[: len(parents) - node.level + is_package]
    return ".".join([*kept, *([node.module] if node.module else [])])


def import_graph(packages: Iterable[Path]) -> dict[str, set[str]]:
    """Every module of the packages, and those of them that it imports."""
    found = {module_name(source, package.parent): source for package in packages for source in sources(package)}
    return {
        name: imported_modules(name, tree(source), is_package=source.name == "__init__.py", known=found)
        for name, source in found.items()
    }


def circle(graph: Mapping[str, Iterable[str]]) -> list[str]:
    """Modules each of which imports the next one, the last being the first again; none where there is no circle."""
    done: set[str] = set()
    for start in sorted(graph):
        path: list[str] = []
        pending = [(start, iter(sorted(graph[start])))] if start not in done else []
        path += [start] if pending else []
        while pending:
            following = next(pending[-1][1], None)
            if following is None:
                done.add(path.pop())
                pending.pop()
            elif following in path:
                return [*path[path.index(following) :], following]
            elif following not in done:
                path.append(following)
                pending.append((following, iter(sorted(graph[following]))))
    return []


def relative(source: Path) -> str:
    return str(source.relative_to(ROOT))


@pytest.mark.parametrize(
    ("package", "forbidden"),
    [
        ("lmi_core", {"lmi", "lmi_schemas", "lmi_handlers", "lmi_plugins", "djl_python", *WEB, "typer"}),
        ("lmi_schemas", {"lmi", "lmi_handlers", "lmi_plugins", "djl_python", *WEB, "typer", *ENGINES}),
        ("lmi_handlers", {"lmi", "lmi_plugins", *ENGINES}),
        ("djl_python", {"lmi", "lmi_handlers", "lmi_plugins", *WEB, "typer"}),
        ("lmi_plugins", {"lmi", "lmi_handlers", "djl_python", *WEB, "typer"}),
    ],
)
def test_imports_go_down_only(package: str, forbidden: set[str]) -> None:
    found = {relative(source): imported(ast.walk(tree(source))) & forbidden for source in sources(PACKAGES[package])}
    clients = WEB_CLIENTS if package == "lmi_core" else {}
    assert {source: modules for source, modules in found.items() if modules} == clients


def test_no_imports_in_a_circle() -> None:
    assert circle(import_graph(PACKAGES.values())) == []


@pytest.mark.parametrize(
    ("graph", "expected"),
    [
        ({}, []),
        ({"a": ["b", "c"], "b": ["c"], "c": []}, []),
        ({"a": ["a"]}, ["a", "a"]),
        ({"a": ["b"], "b": ["c"], "c": ["b"]}, ["b", "c", "b"]),
        ({"a": [], "b": ["a", "c"], "c": ["d"], "d": ["a", "b"]}, ["b", "c", "d", "b"]),
    ],
)
def test_circle(graph: dict[str, list[str]], expected: list[str]) -> None:
    assert circle(graph) == expected


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("import p.a.x", {"p.a.x"}),
        ("from p.a import x", {"p.a.x"}),
        ("from p.a import anything", {"p.a"}),
        ("if TYPE_CHECKING:\n    from p.a.x import X", {"p.a.x"}),
        ("def f():\n    from p.a.x import X", {"p.a.x"}),
        ("from . import x", {"p.a.x"}),
        ("from .x import X", {"p.a.x"}),
        ("from .. import b", {"p.b"}),
        ("from ..b import B", {"p.b"}),
        ("import os, torch", set()),
    ],
)
def test_imported_modules(code: str, expected: set[str]) -> None:
    known = {"p", "p.a", "p.a.x", "p.a.y", "p.b"}
    assert imported_modules("p.a.y", ast.parse(code), is_package=False, known=known) == expected


def test_imports_of_a_package_are_relative_to_itself() -> None:
    code = ast.parse("from . import x\nfrom .. import b")
    assert imported_modules("p.a", code, is_package=True, known={"p.a", "p.a.x", "p.b"}) == {"p.a.x", "p.b"}


@pytest.mark.parametrize("package", PACKAGES.values(), ids=relative)
def test_folders_are_at_most_four_deep(package: Path) -> None:
    depths = {
        relative(source.parent): len(source.parent.relative_to(package.parent).parts) for source in sources(package)
    }
    assert {folder: depth for folder, depth in depths.items() if depth > MAX_DEPTH} == {}


def room_of(source: Path, package: Path) -> str:
    """The folder directly below the package that has the source; "." for the package's own files."""
    parts = source.relative_to(package).parts
    return parts[0] if len(parts) > 1 else "."


def column_of(package: str) -> list[str]:
    """The rooms of a package as the architecture page lists them, the top first."""
    found = re.search(rf"^### {package}\n\n((?:    .+\n)+)", ARCHITECTURE.read_text(), re.MULTILINE)
    assert found is not None, package
    return [line.split()[0].rstrip("/") for line in found[1].splitlines()]


@pytest.mark.parametrize("package", ORDERED)
def test_a_room_imports_only_rooms_below_it(package: str) -> None:
    folder, column = ROOT / package, column_of(package)
    found = {module_name(source, ROOT / package.partition("/")[0]): source for source in sources(folder)}
    rooms = {room_of(source, folder) for source in found.values()}
    assert sorted(column) == sorted(rooms), f"{relative(ARCHITECTURE)}, {package}: {rooms ^ {*column}}"
    wrong = [
        f"{relative(source)} imports {target}"
        for name, source in found.items()
        for target in imported_modules(name, tree(source), is_package=source.name == "__init__.py", known=found)
        if column.index(room_of(source, folder)) > column.index(room_of(found[target], folder))
    ]
    assert wrong == []


@pytest.mark.parametrize("dialect", DIALECT_ROOMS)
def test_no_dialect_imports_another_one(dialect: str) -> None:
    others = {f"lmi_handlers.{other}" for other in DIALECT_ROOMS} - {f"lmi_handlers.{dialect}"}
    imports = {
        node.module
        for source in sources(PACKAGES["lmi_handlers"] / dialect)
        for node in ast.walk(tree(source))
        if isinstance(node, ast.ImportFrom) and node.module is not None
    }
    assert {module for module in imports if any(f"{module}.".startswith(f"{other}.") for other in others)} == set()


@pytest.mark.parametrize("folder", LIGHT_FOLDERS, ids=relative)
def test_no_engine_at_module_level(folder: Path) -> None:
    found = {relative(source): imported(run_at_import(tree(source))) & ENGINES for source in sources(folder)}
    assert {source: modules for source, modules in found.items() if modules} == {}


@pytest.mark.parametrize(
    ("code", "everywhere", "at_import"),
    [
        ("import torch.nn as nn, os", {"torch", "os"}, {"torch", "os"}),
        ("from torch.nn import functional", {"torch"}, {"torch"}),
        ("def f():\n    import torch", {"torch"}, set()),
        ("class A:\n    import torch", {"torch"}, {"torch"}),
        ("try:\n    import vllm\nexcept ImportError:\n    import torch", {"vllm", "torch"}, {"vllm", "torch"}),
        ("if TYPE_CHECKING:\n    import torch", {"torch"}, set()),
        ("from . import torch", set(), set()),
        ("name = 'torch'", set(), set()),
    ],
)
def test_imports_of_a_source(code: str, everywhere: set[str], at_import: set[str]) -> None:
    module = ast.parse(code)
    assert imported(ast.walk(module)) == everywhere
    assert imported(run_at_import(module)) == at_import


def test_loading_plugins_imports_no_engine() -> None:
    child = subprocess.run(
        [sys.executable, "-c", IMPORTS_NO_ENGINE], capture_output=True, text=True, timeout=60, check=False
    )
    assert (child.returncode, child.stdout.strip(), child.stderr) == (0, "", "")
