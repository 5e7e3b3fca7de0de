"""Terraform's files: formatted, whole, and with the pools that the Kubernetes overlay asks for."""

import re
from typing import Any

import hcl2
import pytest

from tests.infra.files import INFRA, ROOT, load
from tests.infra.test_kubernetes import pods, ray_groups

AZURE = INFRA / "azure"
TEXT = "\n".join(path.read_text() for path in sorted(AZURE.glob("*.tf")))
#: vCPU and GiB of memory, as Azure's pages on these sizes say.
SIZES = {
    "Standard_D8as_v5": (8, 32),
    "Standard_D16as_v5": (16, 64),
    "Standard_NC24ads_A100_v4": (24, 220),
}


def bare(part: Any) -> Any:
    """HCL's quotes and the parser's own keys taken off."""
    if isinstance(part, dict):
        return {
            key.strip('"'): bare(value) for key, value in part.items() if not key.startswith("__")
        }
    if isinstance(part, list):
        return [bare(one) for one in part]
    return part.strip('"') if isinstance(part, str) else part


def blocks(kind: str) -> dict[str, Any]:
    """Blocks of all files by name: `variable`, `output`; for resources by type and name."""
    found: dict[str, Any] = {}
    for path in AZURE.glob("*.tf"):
        for block in bare(hcl2.loads(path.read_text())).get(kind, []):
            for name, content in block.items():
                if kind == "resource":
                    found |= {f"{name}.{inner}": of for inner, of in content.items()}
                else:
                    found[name] = content
    return found


RESOURCES, VARIABLES = blocks("resource"), blocks("variable")


def pool(name: str) -> dict[str, Any]:
    return RESOURCES[f"azurerm_kubernetes_cluster_node_pool.{name}"]


def test_variables_and_resources_are_declared_and_used() -> None:
    used = set(re.findall(r"\bvar\.(\w+)", re.sub(r'variable "[^}]*?\n}', "", TEXT)))
    assert used == set(VARIABLES)
    for name, variable in VARIABLES.items():
        assert variable["description"] and variable["type"], name
    named = set(re.findall(r"\b(azurerm_\w+\.\w+)[.\]]", TEXT))
    assert len(named) > 5
    assert named - set(RESOURCES) == set()


def test_nodes_are_labelled_as_pods_ask_for() -> None:
    cluster = RESOURCES["azurerm_kubernetes_cluster.this"]
    pools = [cluster["default_node_pool"][0], pool("solving"), pool("training")]
    labels = {one["node_labels"]["courant/pool"] for one in pools}
    asked = {spec["nodeSelector"]["courant/pool"] for _, spec in pods("azure")}
    assert labels == asked == {one["name"] for one in pools}


@pytest.mark.parametrize("name", ["solving", "training"])
def test_pods_fit_the_nodes_of_their_pool(name: str) -> None:
    group = ray_groups("azure")[name]
    block = rf'"azurerm_kubernetes_cluster_node_pool" "{name}" .*?^}}'
    text = re.findall(block, TEXT, re.M | re.S)[0]
    taints = re.findall(r'"([\w./]+)(?:=\w+)?:NoSchedule"', text)
    tolerated = {one["key"] for one in group["template"]["spec"]["tolerations"]}
    assert taints and set(taints) <= tolerated
    assert pool(name)["min_count"] == 0
    assert VARIABLES[f"{name}_nodes"]["default"] == group["maxReplicas"]
    # A node's own programs have a core and some memory.
    cores, memory = SIZES[VARIABLES[f"{name}_size"]["default"]]
    asked = group["template"]["spec"]["containers"][0]["resources"]["requests"]
    assert cores / 2 < int(asked["cpu"]) <= cores - 2
    assert memory / 2 < int(asked["memory"].removesuffix("Gi")) <= 0.9 * memory


def test_the_table_of_costs_is_the_one_that_the_script_prints() -> None:
    costs = load(AZURE / "costs.py")
    page = (ROOT / "docs/operations.md").read_text()
    assert "\n".join(costs.rows(costs.Prices())) in page
    assert costs.services(costs.Prices()) in page
    double = costs.Prices(gpu_node=2 * costs.Prices.gpu_node)
    assert costs.rows(double) != costs.rows(costs.Prices())
