"""The public interface changes only where somebody means to change it, and `import lmi` costs nothing."""

import ast
import difflib
import os
import subprocess
import sys
from pathlib import Path

import pytest

import lmi
import lmi.testing
from lmi_handlers.testing import WRITE_VARIABLE
from tools.docs.public_interface import ROOT, interface, public_objects

PINNED = Path(__file__).with_name("interface.txt")
STUB = ROOT / "handlers" / "lmi" / "__init__.pyi"
# Modules that only some of those need who import the package.
HEAVY = {"aiohttp", "jinja2", "lmi_core", "pydantic", "pytest", "torch", "transformers", "vllm"}

ONLY_IMPORT = f"import lmi, sys; print(*sorted({HEAVY} & sys.modules.keys()))"
SEAMS = f"import sys; from lmi import Backend, Handler, TextBackend; print(*sorted({HEAVY} & sys.modules.keys()))"
ALL_NAMES = f"import sys; from lmi import *; print(*sorted({HEAVY} & sys.modules.keys()))"


def test_the_interface_is_as_promised() -> None:
    """Fail for each change of a name or signature; to make one, follow CONTRIBUTING.md, and write the file anew."""
    found = interface()
    if WRITE_VARIABLE in os.environ:
        PINNED.write_text(found)
    promised = PINNED.read_text()
    difference = difflib.unified_diff(promised.splitlines(), found.splitlines(), "promised", "found", n=0)
    assert list(difference) == [], f"the public interface changed: {WRITE_VARIABLE}=1 writes {PINNED.name} anew"


def test_every_name_can_be_imported() -> None:
    assert lmi.__all__ == sorted(public_objects("lmi"))
    assert lmi.testing.__all__ == sorted(public_objects("lmi.testing"))
    for module in (lmi, lmi.testing):
        for name in module.__all__:
            assert getattr(module, name) is not None
            assert name in dir(module)


def test_the_stub_is_sorted_and_says_what_it_exports() -> None:
    imports = [node for node in ast.parse(STUB.read_text()).body if isinstance(node, ast.ImportFrom)]
    assert [(node.module, node.names[0].name) for node in imports] == sorted(
        (node.module, node.names[0].name) for node in imports
    )
    assert all(len(node.names) == 1 and node.names[0].asname == node.names[0].name for node in imports)


def test_unknown_name() -> None:
    with pytest.raises(ImportError, match="cannot import name 'Backnd' from 'lmi'"):
        exec("from lmi import Backnd")
    with pytest.raises(AttributeError, match="module 'lmi' has no attribute 'Backnd'"):
        _ = getattr(lmi, "Backnd")  # noqa: B009


@pytest.mark.parametrize(
    ("code", "imported"),
    [(ONLY_IMPORT, []), (SEAMS, ["lmi_core", "pydantic"]), (ALL_NAMES, ["aiohttp", "lmi_core", "pydantic"])],
    ids=["package", "seams", "all names"],
)
def test_what_importing_it_imports(code: str, imported: list[str]) -> None:
    child = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert child.stdout.split() == imported
