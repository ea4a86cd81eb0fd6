"""The cases that client programs declare, read without importing the clients."""

import ast
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
FOLDER = Path(__file__).with_name("programs")
ENVIRONMENTS = Path(__file__).with_name("environments")
TESTS_ENVIRONMENT = "tests"  # the one that the tests run in
NODE_ENVIRONMENT = "javascript"
NODE_CASE = re.compile(r'^(?:feature|fault)\(\s*((?:"[^"]*",\s*)+)async', re.MULTILINE)


@dataclass(frozen=True)
class Declared:
    """A case, with the words for the page; `workaround` is of a fault of the client."""

    name: str
    dialect: str
    feature: str
    workaround: str | None = None


@dataclass(frozen=True)
class Program:
    """A client, the environment that it is installed in, and its cases; the name is that of its module."""

    name: str
    package: str
    environment: str
    cases: tuple[Declared, ...]

    @property
    def title(self) -> str:
        return f"{self.package} (npm)" if self.environment == NODE_ENVIRONMENT else self.package

    @property
    def version(self) -> str:
        return pinned_version(self.environment, self.package)


def programs() -> list[Program]:
    """Return the client programs with cases to run, by the package's name."""
    found = [_read_javascript(path) if path.suffix == ".mjs" else _read(path) for path in sources()]
    return sorted((program for program in found if program.cases), key=lambda program: program.package.lower())


def sources() -> list[Path]:
    """Return the files of the programs, each in a folder with the name of its environment."""
    return sorted([*FOLDER.glob("*/[!_]*.py"), *FOLDER.glob("*/*.mjs")])


def requirements(environment: str) -> Path:
    """Return the file with the versions of an environment's Python packages."""
    if environment == TESTS_ENVIRONMENT:
        return ROOT / "constraints.txt"
    return ENVIRONMENTS / f"{environment}.txt"


def pinned_version(environment: str, package: str) -> str:
    if environment == NODE_ENVIRONMENT:
        manifest = ENVIRONMENTS / environment / "package.json"
        return str(json.loads(manifest.read_text(encoding="utf-8"))["dependencies"][package])
    text = requirements(environment).read_text(encoding="utf-8")
    found = re.search(rf"^{re.escape(package)}==(\S+)", text, re.MULTILINE)
    assert found is not None, f"{package} is not in {requirements(environment)}"
    return found[1]


def _read(path: Path) -> Program:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    constants = {
        node.targets[0].id: node.value.value
        for node in tree.body
        if isinstance(node, ast.Assign)
        and isinstance(node.targets[0], ast.Name)
        and isinstance(node.value, ast.Constant)
    }
    name = f"{path.parent.name}.{path.stem}"
    return Program(name, str(constants["PACKAGE"]), path.parent.name, tuple(list_cases(tree)))


def list_cases(tree: ast.Module) -> Iterator[Declared]:
    """Yield the cases in a program's source, with the arguments of their decorators."""
    for node in tree.body:
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        for decorator in node.decorator_list:
            if isinstance(decorator, ast.Call) and isinstance(decorator.func, ast.Name):
                assert decorator.func.id in ("case", "fault"), decorator.func.id
                arguments: list[Any] = [ast.literal_eval(argument) for argument in decorator.args]
                yield Declared(node.name, *arguments)


def _read_javascript(path: Path) -> Program:
    source = path.read_text(encoding="utf-8")
    package = re.search(r'^export const PACKAGE = "(.*)";$', source, re.MULTILINE)
    assert package is not None, f"{path} names no PACKAGE"
    cases = [Declared(*re.findall(r'"([^"]*)"', texts)) for texts in NODE_CASE.findall(source)]
    return Program(f"{path.parent.name}.{path.stem}", package[1], path.parent.name, tuple(cases))
