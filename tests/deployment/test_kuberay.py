"""The manifest for KubeRay, against the fields of its RayCluster and those of Kubernetes."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import jsonschema_rs
import kubernetes_validate
import yaml

from tests.deployment.dockerfile import ROOT, environment, last_stage

MANIFEST = ROOT / "examples" / "kuberay" / "lmi.yaml"
FIELDS = Path(__file__).with_name("ray_cluster.json")
VERSION = "1.37"


def objects() -> dict[str, Any]:
    return {each["kind"]: each for each in yaml.safe_load_all(MANIFEST.read_text())}


def groups() -> list[Any]:
    """Return the groups of pods of the Ray cluster, the head's first."""
    cluster = objects()["RayCluster"]["spec"]
    return [cluster["headGroupSpec"], *cluster["workerGroupSpecs"]]


def pods() -> list[Any]:
    return [*(each["template"]["spec"] for each in groups()), objects()["Deployment"]["spec"]["template"]["spec"]]


def test_kuberay_and_kubernetes_take_the_manifest() -> None:
    found = objects()
    cluster = found.pop("RayCluster")
    assert cluster["apiVersion"] == "ray.io/v1"
    jsonschema_rs.validator_for(json.loads(FIELDS.read_text())).validate(cluster["spec"])
    pods = [{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}, **each["template"]} for each in groups()]
    for each in [*found.values(), *pods]:
        kubernetes_validate.validate(each, VERSION, strict=True)
    rules = "{extends: default, rules: {line-length: {max: 120}}}"
    lint = [sys.executable, "-m", "yamllint", "--strict", "-d", rules, str(MANIFEST)]
    assert subprocess.run(lint, capture_output=True, text=True, timeout=60).stdout == ""


def test_unknown_fields_are_noticed() -> None:
    cluster = objects()["RayCluster"]["spec"]
    cluster["workerGroupSpecs"][0]["replica"] = 2
    assert not jsonschema_rs.is_valid(json.loads(FIELDS.read_text()), cluster)


def test_the_parts_agree_with_each_other_and_with_the_image() -> None:
    found = objects()
    (server,) = pods()[-1]["containers"]
    head = f"{found['RayCluster']['metadata']['name']}-head-svc:6379"  # KubeRay's name of the head's service
    assert f"ray start --address {head} --num-cpus 0 --num-gpus 0 && exec lmi serve --ray auto" in server["args"][0]
    (waiting,) = pods()[-1]["initContainers"]
    assert f"--address {head};" in waiting["command"][2]
    (image,) = {container["image"] for pod in pods() for container in [*pod["containers"], waiting]}
    version = image.partition(":")[2].removesuffix("-ray")
    assert f'version = "{version}"' in (ROOT / "pyproject.toml").read_text()
    assert f"ray=={found['RayCluster']['spec']['rayVersion']}\n" in (ROOT / "constraints.txt").read_text()
    assert [each["rayStartParams"]["num-cpus"] for each in groups()] == ["0", "1"]
    for pod in pods():
        security = pod["securityContext"]
        assert f"{security['runAsUser']}:{security['runAsGroup']}" == last_stage()["USER"].text
    for pod in pods()[1:]:
        (container,) = pod["containers"]
        mounts = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
        assert environment()["LMI_CACHE"].startswith(mounts["cache"])
        assert {"name": "RAY_gcs_rpc_server_reconnect_timeout_s", "value": "600"} in container["env"]
    for group in groups():
        (container,) = group["template"]["spec"]["containers"]
        ports = {each["name"]: each["containerPort"] for each in container["ports"]}
        for probe in ("livenessProbe", "readinessProbe"):  # otherwise KubeRay adds its own, which need ray[default]
            port = ports[container[probe]["tcpSocket"]["port"]]
            assert group["rayStartParams"]["node-manager-port"] == str(port)
    assert found["Service"]["spec"]["selector"] == found["Deployment"]["spec"]["selector"]["matchLabels"]
    before = float(server["lifecycle"]["preStop"]["exec"]["command"][1])
    assert pods()[-1]["terminationGracePeriodSeconds"] > before + float(server["args"][0].split()[-1])
