"""Loading of a package's shared libraries beside the interpreter, which would hold its lock while it loads them."""

import ctypes
import importlib.util
import os
from pathlib import Path

LIBRARIES = {"torch": ("libtorch_cpu.so", "libtorch_python.so")}  # large ones, each with all that it needs


def load_shared_libraries(package: str) -> None:
    """Load a package's large libraries, if found, before it is imported.

    A call of a C function releases the interpreter's lock, which `import` and `ctypes.CDLL` hold while they load.
    """
    dlopen = getattr(ctypes.CDLL(None), "dlopen", None) if os.name == "posix" else None
    spec = importlib.util.find_spec(package)
    if dlopen is None or spec is None or spec.origin is None:
        return
    dlopen.argtypes, dlopen.restype = (ctypes.c_char_p, ctypes.c_int), ctypes.c_void_p
    for name in LIBRARIES[package]:
        file = Path(spec.origin).parent / "lib" / name
        if file.exists():
            dlopen(bytes(file), os.RTLD_LAZY | os.RTLD_LOCAL)
