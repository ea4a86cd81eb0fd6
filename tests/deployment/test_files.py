"""The Dockerfile, the Kubernetes manifest and the systemd unit, checked by their own tools and against each other."""

import configparser
import shutil
import subprocess
import sys
from pathlib import Path
from urllib.parse import urlsplit

import kubernetes_validate

from tests.deployment.dockerfile import DOCKERFILE, ROOT, copied, environment, health_command, instructions, last_stage
from tests.deployment.manifest import MANIFEST, container, drain_seconds, objects, pod, probes

BIN = Path(sys.executable).parent
UNIT = ROOT / "examples" / "deployment" / "lmi.service"
IMAGES_PROGRAMS = "/opt/lmi/bin"


def run(*command: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*map(str, command)], capture_output=True, text=True, timeout=60)


def unit() -> configparser.ConfigParser:
    """Return the unit; keys that occur several times have the last value."""
    parser = configparser.ConfigParser(interpolation=None, strict=False, delimiters=("=",))
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    parser.read(UNIT)
    return parser


def test_hadolint() -> None:
    # DL3008 wants versions of Debian's packages, which Debian removes once there are newer ones.
    result = run(BIN / "hadolint", "--ignore", "DL3008", DOCKERFILE)
    assert (result.returncode, result.stdout) == (0, "")


def test_the_image_runs_as_an_ordinary_user_with_lmi_as_its_first_process() -> None:
    stage = last_stage()
    assert stage["USER"].text == "1000:1000"
    assert stage["ENTRYPOINT"].command == ["lmi"]
    assert stage["CMD"].command == ["serve"]
    assert stage["STOPSIGNAL"].text == "SIGTERM"
    assert health_command()[0] == "python"


def test_the_image_is_built_from_files_that_are_there_and_not_ignored() -> None:
    allowed = {line.removeprefix("!") for line in (ROOT / ".dockerignore").read_text().splitlines() if line[0] == "!"}
    assert set(copied()) == allowed
    assert all((ROOT / source).exists() for source in copied())


def test_one_python_in_both_stages() -> None:
    bases = [each.text.removesuffix(" AS build") for each in instructions() if each.name == "FROM"]
    assert len(bases) == 2
    assert len(set(bases)) == 1


def test_kubernetes_takes_the_manifest() -> None:
    for each in objects().values():
        kubernetes_validate.validate(each, "1.37", strict=True)
    rules = "{extends: default, rules: {line-length: {max: 120}}}"
    result = run(sys.executable, "-m", "yamllint", "--strict", "-d", rules, MANIFEST)
    assert (result.returncode, result.stdout) == (0, "")


def test_the_parts_of_the_manifest_agree_with_each_other_and_with_the_image() -> None:
    labels = objects()["Deployment"]["spec"]["template"]["metadata"]["labels"]
    assert (
        objects()["Service"]["spec"]["selector"] == objects()["Deployment"]["spec"]["selector"]["matchLabels"] == labels
    )
    assert objects()["Service"]["spec"]["ports"][0]["targetPort"] == container()["ports"][0]["name"] == "http"
    ports = {
        container()["ports"][0]["containerPort"],
        int(last_stage()["EXPOSE"].text),
        urlsplit(environment()["SERVING_INFERENCE_ADDRESS"]).port,
    }
    assert ports == {8080}
    security = pod()["securityContext"]
    assert f"{security['runAsUser']}:{security['runAsGroup']}" == last_stage()["USER"].text
    mounts = {mount["name"]: mount["mountPath"] for mount in container()["volumeMounts"]}
    assert mounts.keys() == {volume["name"] for volume in pod()["volumes"]}
    assert mounts["model"] == "/opt/ml/model"
    assert all(environment()[name].startswith(mounts["cache"]) for name in ("HF_HOME", "LMI_CACHE"))
    assert container()["image"].partition(":")[2] in (ROOT / "pyproject.toml").read_text()


def test_requests_have_the_time_that_they_are_given() -> None:
    before = float(container()["lifecycle"]["preStop"]["exec"]["command"][1])
    assert pod()["terminationGracePeriodSeconds"] > before + drain_seconds()
    command = unit()["Service"]["ExecStart"].split()
    assert float(unit()["Service"]["TimeoutStopSec"]) > float(command[command.index("--drain-seconds") + 1])


def test_a_model_that_is_loaded_for_long_is_not_killed() -> None:
    """Liveness holds while a model is loaded, readiness does not."""
    assert probes() == {
        "startupProbe": "/liveness",
        "livenessProbe": "/liveness",
        "readinessProbe": "/readiness",
    }


def test_systemd_restarts_what_may_succeed_and_lets_lmi_end_its_engines() -> None:
    service = unit()["Service"]
    assert (service["Restart"], service["RestartPreventExitStatus"], service["KillMode"]) == (
        "on-failure",
        "2",
        "mixed",
    )
    assert unit()["Unit"]["StartLimitIntervalSec"] == "0"


def test_systemd_takes_the_unit(tmp_path: Path) -> None:
    assert shutil.which("systemd-analyze"), "systemd is not installed: `make programs` installs it, as root"
    copy = tmp_path / UNIT.name
    copy.write_text(UNIT.read_text().replace(IMAGES_PROGRAMS, str(BIN)))
    result = run("systemd-analyze", "verify", copy)
    assert (result.returncode, result.stderr) == (0, "")
