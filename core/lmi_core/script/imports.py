"""Imports of `model.py` and its neighbours by their bare names, isolated from all other modules."""

import builtins
import importlib
import importlib.util
import itertools
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

_numbers = itertools.count()


class ScriptImporter:
    """One folder's modules. To Python they are `lmi_script_N.helper`; their code uses `import helper`.

    So two models can each have a `helper`, and it does not hide an installed `helper`.
    """

    def __init__(self, directory: Path, *further_folders: Path) -> None:
        self._folders = [directory, *further_folders]
        self._name = f"lmi_script_{next(_numbers)}"
        self._builtins = vars(builtins) | {"__import__": self._import}
        self._owned: dict[str, bool] = {}
        self._unloaded: dict[str, ModuleType] | None = None
        self._lock = threading.RLock()  # for the state below

    def load(self, name: str) -> ModuleType:
        """Import a module. Raise the exceptions of its code; the module is then not loaded."""
        package = ModuleType(self._name)
        package.__path__ = [str(folder) for folder in self._folders]
        sys.modules[self._name] = package
        sys.meta_path.insert(0, self)
        importlib.invalidate_caches()
        try:
            return importlib.import_module(f"{self._name}.{name}")
        except BaseException:
            self.unload()
            raise

    def unload(self) -> None:
        """Drop the modules. Running code continues, and may still import."""
        if self in sys.meta_path:
            sys.meta_path.remove(self)
        names = [name for name in sys.modules if name == self._name or name.startswith(f"{self._name}.")]
        self._unloaded = (self._unloaded or {}) | {name: sys.modules.pop(name) for name in names}

    @contextmanager
    def _in_place(self) -> Iterator[None]:
        if self._unloaded is None:
            yield
            return
        with self._lock:
            if self in sys.meta_path:  # during the import of another module
                yield
                return
            sys.modules.update(self._unloaded)
            sys.meta_path.insert(0, self)
            try:
                yield
            finally:
                self.unload()

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return the module spec, for `sys.meta_path`."""
        if not fullname.startswith(f"{self._name}."):
            return None
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is not None and isinstance(spec.loader, SourceFileLoader) and spec.origin is not None:
            spec.loader = _ScriptLoader(fullname, spec.origin, self._builtins)
        return spec

    def _import(
        self,
        name: str,
        globals: Mapping[str, Any] | None = None,
        locals: Mapping[str, Any] | None = None,
        fromlist: Sequence[str] | None = (),
        level: int = 0,
    ) -> ModuleType:
        """Execute an `import` statement of the folder's modules."""
        top = name.partition(".")[0]
        if level > 0 or not self._owns(top):
            with self._in_place() if level > 0 else nullcontext():
                return builtins.__import__(name, globals, locals, fromlist or (), level)
        with self._in_place():
            module = builtins.__import__(f"{self._name}.{name}", globals, locals, fromlist or (), 0)
            return module if fromlist else sys.modules[f"{self._name}.{top}"]

    def _owns(self, name: str) -> bool:
        if name not in self._owned:
            spec = PathFinder.find_spec(name, [str(folder) for folder in self._folders])
            # A plain folder, such as one with a tokenizer's files, is a module only if no other has its name.
            is_installed = name in sys.modules or importlib.util.find_spec(name) is not None
            self._owned[name] = spec is not None and (spec.origin is not None or not is_installed)
        return self._owned[name]


class _ScriptLoader(SourceFileLoader):
    """A loader that sets the importer's `import` in a module, and writes no bytecode to the model directory."""

    def __init__(self, name: str, path: str, module_builtins: dict[str, Any]) -> None:
        super().__init__(name, path)
        self._module_builtins = module_builtins

    def exec_module(self, module: ModuleType) -> None:
        vars(module)["__builtins__"] = self._module_builtins
        super().exec_module(module)

    def get_code(self, fullname: str) -> CodeType | None:
        code: CodeType = self.source_to_code(self.get_data(self.path), self.path)
        return code
