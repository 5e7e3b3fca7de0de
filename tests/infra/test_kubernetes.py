"""Kubernetes' objects: valid, whole, closed, and with names that the code knows."""

import itertools
import json
import os
import re
import subprocess
from collections.abc import Iterator
from importlib.metadata import version

import kubernetes_validate
import pytest
import yaml
from prefect.utilities.templating import apply_values
from ray.scripts.scripts import start

from courant.ray_session import GPUS_ON_DEMAND as VARIABLE
from courant.ray_session import gpus_on_demand
from tests.infra.files import INFRA
from tests.infra.kustomize import Manifest, pod_of, render

KUBERNETES = INFRA / "kubernetes"
OVERLAYS = {name: render(KUBERNETES / "overlays" / name) for name in ("azure", "small")}
#: The oldest that is still looked after, and one of now.
VERSIONS = ("1.32", "1.35")


def objects(overlay: str, kind: str) -> list[Manifest]:
    return [one for one in OVERLAYS[overlay] if one["kind"] == kind]


def ray_groups(overlay: str) -> dict[str, Manifest]:
    (cluster,) = objects(overlay, "RayCluster")
    spec = cluster["spec"]
    groups = {group["groupName"]: group for group in spec["workerGroupSpecs"]}
    return {"head": spec["headGroupSpec"], **groups}


def flow_job() -> Manifest:
    """The job of a flow run, as Prefect's worker fills it in."""
    template = json.loads((KUBERNETES / "job-template.json").read_text())
    variables = template["variables"]["properties"].items()
    values = {name: shown["default"] for name, shown in variables if "default" in shown}
    values |= {"name": "a-run", "command": ["prefect", "flow-run", "execute"], "env": []}
    job = apply_values(template["job_configuration"]["job_manifest"], values)
    # Prefect's worker refuses a job without these two, which Kubernetes ignores in a pod.
    assert [pod_of(job).pop(name) for name in ("parallelism", "completions")] == [1, 1]
    return job


def pods(overlay: str) -> Iterator[tuple[str, Manifest]]:
    """Every pod's specification, by the name of what makes it."""
    for one in OVERLAYS[overlay]:
        if one["kind"] in ("Deployment", "StatefulSet"):
            yield one["metadata"]["name"], pod_of(one)
    for name, group in ray_groups(overlay).items():
        yield f"ray {name}", group["template"]["spec"]
    yield "flow", pod_of(flow_job())


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_every_object_is_valid(overlay: str) -> None:
    checked = [one for one in [*OVERLAYS[overlay], flow_job()] if one["kind"] != "RayCluster"]
    assert len(checked) > 30
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}}
    checked += [{**pod, "spec": spec} for _, spec in pods(overlay)]
    for one, wanted in itertools.product(checked, VERSIONS):
        kubernetes_validate.validate(one, wanted, strict=True)


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_the_ray_cluster_has_fields_that_kuberay_knows(overlay: str) -> None:
    (cluster,) = objects(overlay, "RayCluster")
    assert cluster["apiVersion"] == "ray.io/v1"
    for group in cluster["spec"]["workerGroupSpecs"]:
        assert group["minReplicas"] <= group["replicas"] <= group["maxReplicas"]
    assert cluster["spec"]["rayVersion"] == version("ray")
    known = {option.removeprefix("--") for one in start.params for option in one.opts}
    for group in ray_groups(overlay).values():
        assert set(group["rayStartParams"]) <= known


def test_cases_go_where_openfoam_is_and_training_where_gpus_are() -> None:
    groups = ray_groups("azure")
    for name in ("head", "training"):
        assert groups[name]["rayStartParams"]["num-cpus"] == "0", "a case would be sent there"
    solving, training = (groups[name]["template"]["spec"] for name in ("solving", "training"))
    assert "courant-solving" in solving["containers"][0]["image"]
    assert "courant-training" in training["containers"][0]["image"]
    limits = training["containers"][0]["resources"]["limits"]
    assert limits["nvidia.com/gpu"] == groups["training"]["rayStartParams"]["num-gpus"] == "1"
    assert any(one["key"] == "nvidia.com/gpu" for one in training["tolerations"])
    assert any("spot" in one.values() for one in solving["tolerations"])


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_the_head_knows_how_many_gpus_can_come(overlay: str, monkeypatch) -> None:
    groups = ray_groups(overlay)
    (container,) = groups["head"]["template"]["spec"]["containers"]
    (told,) = (one["value"] for one in container["env"] if one["name"] == VARIABLE)
    monkeypatch.setenv(VARIABLE, told)
    most = groups["training"]["maxReplicas"] if "training" in groups else 0
    assert gpus_on_demand() == most
    (quota,) = objects(overlay, "ResourceQuota")
    assert int(quota["spec"]["hard"].get("requests.nvidia.com/gpu", 0)) == most


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_no_pod_has_more_rights_than_it_needs(overlay: str) -> None:
    for name, spec in pods(overlay):
        account = spec["securityContext"]
        assert account["runAsNonRoot"] and account["runAsUser"] > 0, name
        assert account["seccompProfile"] == {"type": "RuntimeDefault"}, name
        for container in spec["containers"]:
            closed = container["securityContext"]
            assert closed["readOnlyRootFilesystem"], name
            assert closed["allowPrivilegeEscalation"] is False, name
            assert closed["capabilities"]["drop"] == ["ALL"], name
            assert {"cpu", "memory"} <= set(container["resources"]["limits"]), name
        asks_kubernetes = name in ("courant-worker", "ray head")
        assert spec.get("automountServiceAccountToken", True) is asks_kubernetes, name


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_what_pods_refer_to_is_there(overlay: str) -> None:
    maps = {one["metadata"]["name"]: one for one in objects(overlay, "ConfigMap")}
    accounts = {one["metadata"]["name"] for one in objects(overlay, "ServiceAccount")}
    claims = {one["metadata"]["name"] for one in objects(overlay, "PersistentVolumeClaim")}
    secrets = {one["metadata"]["name"] for one in made_secrets()}
    for name, spec in pods(overlay):
        assert spec.get("serviceAccountName", "default") in {*accounts, "default"}, name
        given = {volume["name"] for volume in spec.get("volumes", [])} | {"data"}
        for container in spec["containers"]:
            assert {mount["name"] for mount in container["volumeMounts"]} <= given, name
            for source in container.get("envFrom", []):
                assert source.get("configMapRef", {}).get("name") in {None, *maps}, name
                assert source.get("secretRef", {}).get("name") in {None, *secrets}, name
        for volume in spec.get("volumes", []):
            assert volume.get("configMap", {}).get("name") in {None, *maps}, name
            wanted = volume.get("persistentVolumeClaim", {}).get("claimName")
            assert wanted in {None, *claims}, name
    (cluster,) = objects(overlay, "RayCluster")
    assert cluster["spec"]["authOptions"] == {"mode": "token", "secretName": "courant-ray"}
    services = {of["metadata"]["name"]: of["spec"]["ports"] for of in objects(overlay, "Service")}
    services["courant-head-svc"] = [{"port": 8265}]  # made by KubeRay
    text = json.dumps([*OVERLAYS[overlay], flow_job(), *made_secrets()])
    asked = re.findall(r"\b(courant-[a-z0-9-]+):(\d{4,5})\b", text)
    assert len(asked) >= 6
    assert all(int(port) in {of["port"] for of in services[name]} for name, port in asked)


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_only_the_door_is_reached_from_outside(overlay: str) -> None:
    services = objects(overlay, "Service")
    outside = [one for one in services if one["spec"].get("type", "ClusterIP") != "ClusterIP"]
    assert [one["metadata"]["name"] for one in outside] == ["courant-proxy"]
    assert ray_groups(overlay)["head"]["serviceType"] == "ClusterIP"
    policies = objects(overlay, "NetworkPolicy")
    for_all = [one["spec"] for one in policies if one["spec"]["podSelector"] == {}]
    closed = [one["policyTypes"] for one in for_all if "ingress" not in one]
    assert {"Ingress", "Egress"} in map(set, closed)
    component = "app.kubernetes.io/component"
    labels = {
        one["spec"]["template"]["metadata"]["labels"][component]
        for one in [*OVERLAYS[overlay], flow_job()]
        if one["kind"] in ("Deployment", "StatefulSet", "Job")
    } | {"ray"}
    named = set(re.findall(rf'"{component}": "([\w-]+)"', json.dumps(policies)))
    assert named == labels, "each has its policy, and none is for what is not there"
    # Prefect answers pages of its own origin alone.
    maps = {one["metadata"]["name"]: one["data"] for one in objects(overlay, "ConfigMap")}
    host = maps["courant-host"]
    assert host["PREFECT_SERVER_CORS_ALLOWED_ORIGINS"] == host["PREFECT_UI_URL"]
    assert host["COURANT_HOST"] in host["PREFECT_UI_URL"]


def made_secrets() -> list[Manifest]:
    done = subprocess.run(
        [KUBERNETES / "make-secrets"],
        capture_output=True,
        text=True,
        check=True,
        env={"PATH": os.environ["PATH"], "PEOPLE_HASH": "$2a$14$abc"},
    )
    return [one for one in yaml.safe_load_all(done.stdout) if one]


def test_secrets_are_valid_drawn_anew_and_fit_each_other() -> None:
    for one in made_secrets():
        kubernetes_validate.validate(one, VERSIONS[-1], strict=True)
    first, again = (
        {one["metadata"]["name"]: one["stringData"] for one in made_secrets()} for _ in range(2)
    )
    assert first["courant-ray"] != again["courant-ray"]
    assert first["courant-ray"]["auth_token"] == first["courant-ray"]["RAY_AUTH_TOKEN"]
    server, client = first["courant-prefect-server"], first["courant-prefect-client"]
    assert server["PREFECT_SERVER_API_AUTH_STRING"] == client["PREFECT_API_AUTH_STRING"]
    password = first["courant-postgres"]["POSTGRES_PASSWORD"]
    assert f":{password}@courant-postgres:5432" in server["PREFECT_API_DATABASE_CONNECTION_URL"]
