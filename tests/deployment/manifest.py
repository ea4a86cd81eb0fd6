"""The Kubernetes manifest, read."""

from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[2]
MANIFEST = ROOT / "examples" / "deployment" / "kubernetes.yaml"


def objects() -> dict[str, Any]:
    """Return the objects of the manifest by kind."""
    return {each["kind"]: each for each in yaml.safe_load_all(MANIFEST.read_text())}


def pod() -> Any:
    return objects()["Deployment"]["spec"]["template"]["spec"]


def container() -> Any:
    (only,) = pod()["containers"]
    return only


def probes() -> dict[str, str]:
    """Return the path that each probe requests."""
    found = {name: probe["httpGet"] for name, probe in container().items() if name.endswith("Probe")}
    assert {each["port"] for each in found.values()} == {"http"}
    return {name: str(each["path"]) for name, each in found.items()}


def drain_seconds() -> float:
    arguments = container()["args"]
    return float(arguments[arguments.index("--drain-seconds") + 1])
