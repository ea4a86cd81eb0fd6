"""Imports go down only, and an engine is imported when it is created."""

import ast
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = {
    "lmi_core": ROOT / "core" / "lmi_core",
    "lmi_handlers": ROOT / "handlers" / "lmi_handlers",
    "djl_python": ROOT / "handlers" / "djl_python",
    "lmi_plugins": ROOT / "plugins" / "lmi_plugins",
}
ENGINES = {"torch", "transformers", "vllm"}
LIGHT_FOLDERS = [
    PACKAGES["lmi_core"],
    PACKAGES["lmi_handlers"],
    PACKAGES["djl_python"],
    PACKAGES["lmi_plugins"] / "backends",
    PACKAGES["lmi_plugins"] / "formatters",
]

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


def relative(source: Path) -> str:
    return str(source.relative_to(ROOT))


@pytest.mark.parametrize(
    ("package", "forbidden"),
    [
        ("lmi_core", {"lmi_handlers", "lmi_plugins", "djl_python", "aiohttp", "uvloop", "typer"}),
        ("lmi_handlers", {"lmi_plugins", *ENGINES}),
        ("djl_python", {"lmi_handlers", "lmi_plugins", "aiohttp", *ENGINES}),
        ("lmi_plugins", {"lmi_handlers", "aiohttp", "uvloop", "typer"}),
    ],
)
def test_imports_go_down_only(package: str, forbidden: set[str]) -> None:
    found = {relative(source): imported(ast.walk(tree(source))) & forbidden for source in sources(PACKAGES[package])}
    assert {source: modules for source, modules in found.items() if modules} == {}


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
