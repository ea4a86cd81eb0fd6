"""The packages of a model's code, in its `requirements.txt`, which `option.enable_venv` installs."""

import hashlib
import os
import shlex
import subprocess
import sys
import sysconfig
import venv
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from packaging.requirements import InvalidRequirement, Requirement

from lmi_core.configuration.cache import cache_folder
from lmi_core.errors import ConfigurationError
from lmi_core.script.djl_names.modules import why_missing

REQUIREMENTS = "requirements.txt"
LINES_OF_PIP = 20  # the last ones contain the reason for a failure
UNMET_SHOWN = 5  # some files list every package of their author's machine


@dataclass(frozen=True)
class Environment:
    """A model's own virtual environment, whose packages override the server's."""

    directory: Path

    @property
    def python(self) -> Path:
        return self.directory / "bin" / "python"

    @property
    def site_packages(self) -> Path:
        version = f"python{sys.version_info.major}.{sys.version_info.minor}"
        return self.directory / "lib" / version / "site-packages"


def model_environment(directory: Path, enabled: bool) -> Environment | None:
    """Return the model's environment, creating it for new requirements. Raise ConfigurationError if pip fails."""
    requirements = directory / REQUIREMENTS
    if not enabled or not requirements.is_file():
        return None
    # Paths in the requirements are relative to this folder.
    content = f"{sys.version}\n{requirements.parent.resolve()}\n".encode() + requirements.read_bytes()
    environment = Environment(cache_folder(os.environ) / "environments" / hashlib.sha256(content).hexdigest()[:16])
    complete = environment.directory / "complete"
    if not complete.exists():
        venv.create(environment.directory, clear=True)
        library = {sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib")}
        others = [path for path in sys.path if Path(path).is_dir() and path not in library]
        server = [path for path in others if "lib-dynload" not in path]
        (environment.site_packages / "lmi.pth").write_text("\n".join(server))
        _install(requirements, environment)
        complete.touch()
    return environment


def _install(requirements: Path, environment: Environment) -> None:
    command = [sys.executable, "-m", "pip", "--python", str(environment.python), "install", "--no-input"]
    done = subprocess.run(
        [*command, "--requirement", str(requirements.resolve())],
        cwd=requirements.parent,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        lines = (done.stdout + done.stderr).splitlines()[-LINES_OF_PIP:]
        raise ConfigurationError("\n".join([f"option.enable_venv: {requirements} cannot be installed", *lines]))


def requirements_warnings(directory: Path, script: Path, enabled: bool) -> list[str]:
    """Return a warning if the server's packages do not meet a script's requirements, which LMI's containers install."""
    requirements = directory / REQUIREMENTS
    if enabled or not script.is_file() or not requirements.is_file():
        return []
    lines = requirements.read_text("utf-8", errors="replace").splitlines()
    unmet = [each for line in lines if (each := _unmet(line)) is not None]
    if not unmet:
        return []
    further = [f"and {len(unmet) - UNMET_SHOWN} more"] if len(unmet) > UNMET_SHOWN else []
    shown = ", ".join([*unmet[:UNMET_SHOWN], *further])
    return [f"{REQUIREMENTS} is not installed: {shown}; option.enable_venv=true installs it, as LMI's containers do"]


def _unmet(line: str) -> str | None:
    try:
        requirement = Requirement(line.partition(" #")[0])
    except InvalidRequirement:  # a comment, an option of pip or an address: nothing to compare
        return None
    if requirement.marker is not None and not requirement.marker.evaluate():
        return None
    try:
        installed = version(requirement.name)
    except PackageNotFoundError:
        return f"{requirement} (not installed)"
    if requirement.specifier.contains(installed, prereleases=True):
        return None
    return f"{requirement} ({installed} is installed)"


def missing_package_hint(error: BaseException, directory: Path) -> str:
    """Return how to install the package that an import did not find; "" for other errors."""
    missing: BaseException | None = error
    while missing is not None and not isinstance(missing, ModuleNotFoundError):
        missing = missing.__cause__ or missing.__context__
    if missing is None or missing.name is None:
        return ""
    if (reason := why_missing(missing.name)) is not None:
        return f"\n{missing.name} is not available: {reason}"
    package = missing.name.partition(".")[0]
    if (directory / REQUIREMENTS).is_file():
        command = f"pip install -r {shlex.quote(str(directory / REQUIREMENTS))}"
        return f"\nThe package {package} is not installed: set option.enable_venv=true, or run: {command}"
    return f"\nThe package {package} is not installed. Run: pip install {package}"
