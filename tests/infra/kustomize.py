"""Renders the overlays of infra/kubernetes: the part of Kustomize that they use, and no other.

That part: resources, images, one namespace, config maps of files, and patches of RFC 6902.
"""

import copy
import hashlib
from pathlib import Path
from typing import Any

import jsonpatch
import yaml

Manifest = dict[str, Any]
KEYS = {"resources", "namespace", "images", "patches", "configMapGenerator"}
CLUSTER_WIDE = {"Namespace", "PriorityClass", "ClusterRole", "ClusterRoleBinding"}


def render(folder: Path) -> list[Manifest]:
    """Every object that `kubectl apply -k` would send."""
    asked = yaml.safe_load((folder / "kustomization.yaml").read_text())
    unknown = set(asked) - KEYS - {"apiVersion", "kind"}
    assert not unknown, f"{folder}: this renderer does not know {unknown}"
    found: list[Manifest] = []
    for name in asked["resources"]:
        path = folder / name
        found += render(path) if path.is_dir() else documents(path)
    for generator in asked.get("configMapGenerator", []):
        found.append(config_map(generator, folder, found))
    if "namespace" in asked:
        for one in found:
            in_namespace(one, asked["namespace"])
    for patch in asked.get("patches", []):
        found = [patched(one, patch) for one in found]
    for image in asked.get("images", []):
        for one in found:
            rename(one, image)
    return found


def documents(path: Path) -> list[Manifest]:
    return [one for one in yaml.safe_load_all(path.read_text()) if one]


def config_map(generator: Manifest, folder: Path, users: list[Manifest]) -> Manifest:
    """Its name ends in a hash of its content, so that pods start anew when that changes."""
    data = {name: (folder / name).read_text() for name in generator["files"]}
    suffix = hashlib.sha256(repr(sorted(data.items())).encode()).hexdigest()[:10]
    name = f"{generator['name']}-{suffix}"
    for one in users:
        for volume in pod_of(one).get("volumes", []):
            if volume.get("configMap", {}).get("name") == generator["name"]:
                volume["configMap"]["name"] = name
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data}


def in_namespace(one: Manifest, namespace: str) -> None:
    if one["kind"] not in CLUSTER_WIDE:
        one["metadata"]["namespace"] = namespace
    for subject in one.get("subjects", []):
        subject["namespace"] = namespace


def patched(one: Manifest, patch: Manifest) -> Manifest:
    target = patch["target"]
    if (one["kind"], one["metadata"]["name"]) != (target["kind"], target["name"]):
        return one
    return jsonpatch.JsonPatch(yaml.safe_load(patch["patch"])).apply(copy.deepcopy(one))


def rename(part: Any, image: dict[str, str]) -> None:
    """Kustomize looks for `containers` and `initContainers` anywhere."""
    if isinstance(part, list):
        for item in part:
            rename(item, image)
    if not isinstance(part, dict):
        return
    for name, value in part.items():
        if name in ("containers", "initContainers"):
            for container in value:
                if container["image"] == image["name"]:
                    container["image"] = f"{image['newName']}:{image['newTag']}"
        rename(value, image)


def pod_of(one: Manifest) -> Manifest:
    """The pod's specification that an object has, if it has one."""
    return one.get("spec", {}).get("template", {}).get("spec", {})
