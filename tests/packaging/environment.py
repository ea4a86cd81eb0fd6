"""A fresh environment with this project's libraries, into which packages are installed as users install them."""

import os
import subprocess
import sys
import sysconfig
import tarfile
from pathlib import Path

LIBRARIES = sysconfig.get_path("purelib")


class Environment:
    """An environment that sees the libraries of the one that runs the tests, behind its own packages."""

    def __init__(self, folder: Path) -> None:
        self.bin = folder / "bin"
        _run(sys.executable, "-m", "venv", "--without-pip", folder)
        (own,) = folder.glob("lib/python*/site-packages")
        self.packages = own
        (own / "libraries.pth").write_text(f"{LIBRARIES}\n")

    def install(self, wheel: Path) -> None:
        _run(sys.executable, "-m", "pip", "--python", self.bin / "python", "install", "--no-deps", "--quiet", wheel)

    def run(self, program: str, *arguments: object, cwd: Path) -> subprocess.CompletedProcess[str]:
        """Run a program of the environment, with none of the sources in reach."""
        command = [str(self.bin / program), *map(str, arguments)]
        return subprocess.run(command, capture_output=True, text=True, timeout=300, cwd=cwd, env=self.variables)

    @property
    def variables(self) -> dict[str, str]:
        hidden = ("PYTHONPATH", "VIRTUAL_ENV")
        others = {name: value for name, value in os.environ.items() if name not in hidden}
        return others | {"PATH": f"{self.bin}:{os.environ['PATH']}"}


def build(source: Path, target: Path, kind: str) -> Path:
    """Build a `wheel` or an `sdist` of a folder, as `python -m build --no-isolation` does, and return its path."""
    _run(sys.executable, "-m", "hatchling", "build", "--target", kind, "--directory", target, cwd=source)
    (built,) = target.glob("*.whl" if kind == "wheel" else "*.tar.gz")
    return built


def unpacked(sdist: Path, folder: Path) -> Path:
    """Return the folder in a source distribution, unpacked into `folder`."""
    with tarfile.open(sdist) as archive:
        archive.extractall(folder, filter="data")
    (only,) = folder.iterdir()
    return only


def _run(*command: object, cwd: Path | None = None) -> None:
    variables = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    result = subprocess.run([*map(str, command)], capture_output=True, text=True, timeout=300, cwd=cwd, env=variables)
    assert result.returncode == 0, result.stdout + result.stderr
