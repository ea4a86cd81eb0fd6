"""Private names of libraries, each used in one file that says why; those that a class overrides are not seen."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TREES = ("core", "handlers", "plugins", "examples")
# Of named tuples, `os` and `sys`, as Python documents them
PUBLIC = frozenset({"_asdict", "_current_frames", "_exit", "_replace"})
OWN = ("self", "cls")
BY_NAME = ("getattr", "setattr", "hasattr", "delattr")

USED = {
    # What has no public way: each file has the reason and a link, and a test of it fails if the name changes.
    "plugins/lmi_plugins/torch_engine/checkpoint/dry_run.py": {"_subclasses"},
    "plugins/lmi_plugins/torch_engine/model/graph/attention_nodes.py": {"_PagedAttentionExtension"},
    "plugins/lmi_plugins/torch_engine/model/graph/experts.py": {"_apply_gate"},
    "plugins/lmi_plugins/torch_engine/model/graph/tracing.py": {"_buffers", "_parameters"},
    "plugins/lmi_plugins/torch_engine/model/onednn.py": {
        *("_is_mkldnn_bf16_supported", "_linear_pointwise", "_reorder_linear_weight"),
    },
    "plugins/lmi_plugins/torch_engine/model/own_attention.py": {"_reshape", "_split_heads"},
    "plugins/lmi_plugins/torch_engine/model/transformers_internals.py": {
        *("_attn_implementation", "_can_set_attn_implementation", "_is_stateful"),
    },
    "plugins/lmi_plugins/vllm_engine/arguments/parsing.py": {"_actions"},
    "plugins/lmi_plugins/vllm_engine/guide_libraries.py": {"_backend", "_create_grammar"},
    "plugins/lmi_plugins/vllm_engine/requests/cpu_seeds.py": {"_bookkeeping_sync", "_sample"},
    "plugins/lmi_plugins/vllm_engine/statistics.py": {"_collector_to_names", "_name"},
}


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.endswith("__") and name != "_" and name not in PUBLIC


def foreign_names(code: ast.Module) -> set[str]:
    """Return the private names that a source uses of others: as attributes, by `getattr`, or by import."""
    return {name for name in used_names(code) if is_private(name)} - defined_names(code)


def used_names(code: ast.Module) -> Iterator[str]:
    for node in ast.walk(code):
        match node:
            case ast.Attribute(value=ast.Name(id=owner)) if owner in OWN:
                pass
            case ast.Attribute(attr=name):
                yield name
            case ast.Call(func=ast.Name(id=function), args=[_, ast.Constant(value=str(name)), *_]) if (
                function in BY_NAME
            ):
                yield name
            case ast.ImportFrom(module=module, names=names):
                yield from (module or "").split(".")
                yield from (alias.name for alias in names)
            case ast.Import(names=names):
                yield from (part for alias in names for part in alias.name.split("."))


def defined_names(code: ast.Module) -> set[str]:
    """Return the names of functions and classes of a source, and of the attributes of its own objects."""
    found: set[str] = set()
    for node in ast.walk(code):
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                found.add(name)
            case ast.Attribute(value=ast.Name(id=owner), attr=name) if owner in OWN:
                found.add(name)
            case ast.AnnAssign(target=ast.Name(id=name)):
                found.add(name)
    return found


def test_private_names_of_libraries() -> None:
    sources = [source for tree in TREES for source in sorted((ROOT / tree).rglob("*.py"))]
    assert sources
    found = {str(path.relative_to(ROOT)): foreign_names(ast.parse(path.read_text("utf-8"), path)) for path in sources}
    assert {path: names for path, names in found.items() if names} == USED


@pytest.mark.parametrize("path", USED)
def test_each_has_its_reason(path: str) -> None:
    assert "https://" in (ROOT / path).read_text("utf-8"), "a link to what the library has"


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("model._state", {"_state"}),
        ("self.model._state", {"_state"}),
        ("self._state", set()),
        ("self._state = 1\nother._state", set()),
        ("def _state(): ...\nmodule._state()", set()),
        ("getattr(model, '_state', None)", {"_state"}),
        ("getattr(model, name)", set()),
        ("from library import _state", {"_state"}),
        ("from library._state import x", {"_state"}),
        ("import library._state", {"_state"}),
        ("os._exit(0)", set()),
        ("point._replace(x=1)", set()),
        ("model.__class__", set()),
        ("from . import x", set()),
    ],
)
def test_names_of_a_source(code: str, expected: set[str]) -> None:
    assert foreign_names(ast.parse(code)) == expected
