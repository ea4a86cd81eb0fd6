"""What the wheel and the source distribution contain, and that what is installed from the wheel works."""

import asyncio
import shutil
import signal
import zipfile
from email.parser import HeaderParser
from pathlib import Path

import aiohttp
import pytest

from tests.deployment.dockerfile import copied
from tests.packaging.conftest import ROOT
from tests.packaging.environment import Environment, build, unpacked

PACKAGES = {
    "djl_python": "handlers",
    "lmi": "handlers",
    "lmi_core": "core",
    "lmi_handlers": "handlers",
    "lmi_plugins": "plugins",
    "lmi_schemas": "core",
}
MAX_WHEEL = 5_000_000  # bytes
TEST = """
def test_it(serve, model_dir):
    assert serve(model_dir({"serving.properties": "option.rolling_batch=scripted"})).get("/ping").status == 200
"""


def contents(wheel: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(wheel) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def sources() -> set[str]:
    """Return the files of the packages, as they are named where they are installed."""
    found = set()
    for package, tree in PACKAGES.items():
        files = [path for path in (ROOT / tree / package).rglob("*") if path.is_file()]
        found |= {str(path.relative_to(ROOT / tree)) for path in files if "__pycache__" not in path.parts}
    return found


def test_the_wheel_has_every_file_of_the_packages_and_no_other(wheel: Path) -> None:
    names = set(contents(wheel))
    metadata = {name for name in names if name.startswith("lmi_handlers-")}
    assert names - metadata == sources()
    assert {f"{package}/py.typed" for package in PACKAGES} <= names
    assert any(name.endswith("/licenses/LICENSE") for name in metadata)


def test_the_source_distribution_makes_the_same_wheel(wheel: Path, sdist: Path, tmp_path: Path) -> None:
    again = build(unpacked(sdist, tmp_path / "source"), tmp_path / "wheel", "wheel")
    assert contents(again) == contents(wheel)


def test_the_source_distribution_has_what_the_tests_and_the_documentation_need(sdist: Path, tmp_path: Path) -> None:
    source = unpacked(sdist, tmp_path)
    for name in (
        "Makefile",
        "Dockerfile",
        "CHANGELOG.md",
        "tests/conftest.py",
        "docs/README.md",
        "examples/hello/config.json",
    ):
        assert (source / name).is_file(), name
    assert not list(source.rglob("*.pyc"))


def test_the_image_has_all_that_the_package_is_built_from(wheel: Path, tmp_path: Path) -> None:
    for name in copied():
        path = ROOT / name
        if path.is_dir():
            shutil.copytree(path, tmp_path / "source" / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            (tmp_path / "source").mkdir(exist_ok=True)
            shutil.copy(path, tmp_path / "source")
    assert contents(build(tmp_path / "source", tmp_path / "wheel", "wheel")) == contents(wheel)


def test_extras(wheel: Path) -> None:
    (text,) = [data for name, data in contents(wheel).items() if name.endswith(".dist-info/METADATA")]
    metadata = HeaderParser().parsestr(text.decode())
    assert set(metadata.get_all("Provides-Extra", [])) == {
        "cpu",
        "dev",
        "grpc",
        "ray",
        "s3",
        "testing",
        "tracing",
        "vllm",
    }
    needed = [line.replace(" ", "") for line in metadata.get_all("Requires-Dist", [])]
    of = {
        "boto3": "s3",
        "openvino": "cpu",
        "grpcio": "grpc",
        "opentelemetry-sdk": "tracing",
        "pytest": "testing",
        "vllm": "vllm",
    }
    for library, extra in of.items():
        assert any(line.startswith(f"{library}>=") and line.endswith(f"extra=='{extra}'") for line in needed), library
    assert not any(
        line.startswith(("vllm", "boto3", "openvino", "opentelemetry", "pytest")) and "extra" not in line
        for line in needed
    )


def test_the_wheel_is_small(wheel: Path) -> None:
    assert wheel.stat().st_size < MAX_WHEEL


@pytest.mark.timeout(300)
async def test_lmi_demo_from_a_fresh_environment(installed: Environment, tmp_path: Path) -> None:
    process = await asyncio.create_subprocess_exec(
        *(installed.bin / "lmi", "demo", "--port", "0"),
        stdout=asyncio.subprocess.PIPE,
        start_new_session=True,
        cwd=tmp_path,
        env=installed.variables,
    )
    try:
        assert process.stdout is not None
        printed = (await process.stdout.readuntil(b"Ctrl-C ends")).decode().splitlines()
        names, addresses = zip(*(line.split() for line in printed[:3]), strict=True)
        assert names == ("Chat", "API", "Console")
        assert printed[4:6] == ["> What is Deep Learning?", "Deep Learning is a really cool field."]
        async with aiohttp.ClientSession(addresses[0]) as client:
            body = {"inputs": "What is Deep Learning?", "parameters": {"max_new_tokens": 64}}
            async with client.post("/invocations", json=body) as response:
                assert await response.json() == {"generated_text": "Deep Learning is a really cool field."}
            for page in ("/", "/docs", "/console"):
                async with client.get(page, headers={"Accept": "text/html"}) as response:
                    assert (response.status, response.content_type) == (200, "text/html")
        process.send_signal(signal.SIGINT)
        assert await process.wait() == 0
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


def test_the_installed_sources_are_the_ones_that_run(installed: Environment, tmp_path: Path) -> None:
    code = "import djl_python, lmi, lmi_core, lmi_handlers, lmi_plugins, lmi_schemas, sys; print(lmi_core.__file__)"
    result = installed.run("python", "-c", code, cwd=tmp_path)
    assert result.stdout.startswith(str(installed.packages)), result.stderr
    assert installed.run("lmi", "--version", cwd=tmp_path).stdout.startswith("lmi-handlers ")


@pytest.mark.timeout(300)
def test_pytest_finds_the_plugin(installed: Environment, tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(TEST)
    for further in ("", "pytest_plugins = ['lmi_handlers.testing']\n"):
        (tmp_path / "conftest.py").write_text(further)
        result = installed.run("python", "-m", "pytest", "-q", "-p", "no:asyncio", cwd=tmp_path)
        assert "1 passed" in result.stdout, result.stdout + result.stderr
