"""Build the distributions and check them as a release needs them: `python -m tools.release [VERSION]`."""

import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
DIST = ROOT / "dist"
UV = Path(sys.executable).with_name("uv")


def unready(version: str, project: dict[str, Any], changelog: str, readme: str) -> Iterator[str]:
    """Yield what is missing for a release of this version."""
    if project["version"] != version:
        yield f"pyproject.toml has the version {project['version']}, not {version}"
    if not re.search(rf"^## \[{re.escape(version)}\] - \d{{4}}-\d\d-\d\d$", changelog, re.MULTILINE):
        yield f"CHANGELOG.md has no heading `## [{version}] - YYYY-MM-DD`"
    if "Source" not in project.get("urls", {}):
        yield "pyproject.toml has no [project.urls] with the address of the repository as Source"
    if relative := re.findall(r"\]\((?!https?://)([^)]+)\)", readme):
        yield f"links of README.md that lead nowhere on the package index: {', '.join(relative)}"


def build() -> Path:
    """Build the source distribution and the wheel into dist, and return the wheel."""
    shutil.rmtree(DIST, ignore_errors=True)
    for target in ("sdist", "wheel"):
        _run(sys.executable, "-m", "hatchling", "build", "--target", target, "--directory", DIST)
    (wheel,) = DIST.glob("*.whl")
    return wheel


def smoke_test(wheel: Path) -> None:
    """Install the wheel with all its dependencies in a new environment, and ask its demo."""
    with tempfile.TemporaryDirectory() as folder:
        _run(UV, "venv", "--quiet", "--python", sys.executable, folder)
        python = Path(folder) / "bin" / "python"
        _run(UV, "pip", "install", "--quiet", "--python", python, "--constraint", ROOT / "constraints.txt", wheel)
        command = [str(python.with_name("lmi")), "demo", "--no-open", "--port", "0"]
        with subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            for line in process.stdout:
                print(f"  {line}", end="")
                if "Ctrl-C" in line:
                    break
            process.terminate()
        if process.returncode:
            raise SystemExit("the demo of the wheel does not work")


def main() -> None:
    """Build and check; with a version also what its release needs, up to the tag, which is left to you."""
    if version := next(iter(sys.argv[1:]), None):
        project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
        texts = [(ROOT / name).read_text("utf-8") for name in ("CHANGELOG.md", "README.md")]
        if missing := list(unready(version, project, *texts)):
            raise SystemExit("\n".join(missing))
    wheel = build()
    print(f"{wheel.name}: {wheel.stat().st_size / 1e6:.1f} MB")
    _run(UV, "tool", "run", "twine", "check", "--strict", *DIST.iterdir())
    smoke_test(wheel)
    if version:
        print(f"Next: git tag --sign v{version} && git push origin v{version}, then twine upload dist/*")


def _run(*command: object) -> None:
    subprocess.run([*map(str, command)], check=True, cwd=ROOT)


if __name__ == "__main__":
    main()
