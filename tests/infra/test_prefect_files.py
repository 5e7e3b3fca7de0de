"""Deployments and automations: every flow and family on both pools, and nothing that is not
there.
"""

import importlib
from dataclasses import fields
from typing import Any

import pytest
import yaml
from prefect.cli.deploy._models import PrefectYamlModel
from prefect.utilities.callables import parameter_schema

from courant.recipes import get_recipe
from courant.sweeps.benchmark import contender_names, parse_budget
from courant.sweeps.search_space import load_space
from flows.stages import MainJob
from simgen.cases import FAMILIES, get_family
from tests.infra.files import INFRA, ROOT, load

FILES = {"local": ROOT / "prefect.yaml", "kubernetes": INFRA / "kubernetes/prefect.yaml"}
FLOWS = {"generate-and-train", "generate", "train", "sweep", "benchmark", "evaluate", "optimise"}
SUFFIX = {"local": "", "kubernetes": "-kubernetes"}


def deployments(pool: str) -> list[dict[str, Any]]:
    return yaml.safe_load(FILES[pool].read_text())["deployments"]


def flow_of(deployment: dict[str, Any]) -> Any:
    """The flow that its entrypoint names, imported as a file of the project."""
    path, _, name = deployment["entrypoint"].partition(":")
    assert (ROOT / path).is_file()
    module = importlib.import_module(path.removesuffix(".py").replace("/", "."))
    return getattr(module, name)


@pytest.mark.parametrize("pool", FILES)
def test_every_flow_is_deployed_for_every_family_with_keys_that_prefect_reads(pool: str) -> None:
    content = yaml.safe_load(FILES[pool].read_text())
    found = sorted((flow_of(one).name, one["name"]) for one in content["deployments"])
    assert found == sorted((flow, each + SUFFIX[pool]) for flow in FLOWS for each in FAMILIES)
    read = PrefectYamlModel.model_validate(content)
    for given, one in zip(content["deployments"], read.deployments, strict=True):
        assert set(given) <= set(type(one).model_fields), "Prefect drops unknown keys in silence"
        assert one.work_pool is not None and one.work_pool.name == pool
        family = given["name"].removesuffix(SUFFIX[pool])
        assert given["tags"] == ["courant", flow_of(given).name, family]
        assert given["concurrency_limit"]["limit"] >= 1
        assert given["concurrency_limit"]["collision_strategy"] == "ENQUEUE"
        assert not any(schedule["active"] for schedule in given.get("schedules", []))
        described = parameter_schema(flow_of(given)).properties
        assert described and all(shown.get("description") for shown in described.values())


@pytest.mark.parametrize("pool", FILES)
def test_parameters_of_deployments_are_values_that_their_flows_take(pool: str) -> None:
    for one in deployments(pool):
        flow, given = flow_of(one), one.get("parameters", {})
        required = set(parameter_schema(flow).required or [])
        if flow.name in ("evaluate", "optimise"):
            assert not given, "which run, only the person who starts it knows"
            given = {"run": "s3://bucket/run"}
        assert required <= set(given)
        flow.validate_parameters(given)
        get_family(given.get("family", "cylinder-flow")).settings(given.get("preset", "trial"), {})
        if "recipe" in given:
            assert get_recipe(given["recipe"]).name == given["recipe"]
        if "space" in given:
            load_space(given["space"])
        if "budget" in given:
            parse_budget(given["budget"])
            assert set(given["models"]) <= set(contender_names())


def test_null_drops_a_parameter_that_is_set_and_excludes_a_run() -> None:
    """A report of a trained run by the deployment of a main job."""
    (one, *_) = (of for of in deployments("kubernetes") if flow_of(of).name == "generate-and-train")
    asked = {**one["parameters"], "recipe": None, "run": "s3://bucket/run"}
    known = {field.name for field in fields(MainJob)}
    job = MainJob(**{name: value for name, value in asked.items() if name in known})
    assert job.resolved.run == "s3://bucket/run"


def test_automations_are_such_as_prefect_takes() -> None:
    script = load(INFRA / "prefect/automations.py")
    block = "12345678-1234-5678-1234-567812345678"
    silent, told = script.read_automations(None), script.read_automations(block)
    assert len(told) == len(silent) + 1
    content = yaml.safe_load(script.FILE.read_text())
    for given, one in zip(content["automations"], silent, strict=True):
        assert set(given) <= set(type(one).model_fields)
        assert set(given["trigger"]) <= set(type(one.trigger).model_fields)
        for asked, action in zip(given["actions"], one.actions, strict=True):
            assert set(asked) <= set(type(action).model_fields)
        assert one.trigger.match_related.root == {
            "prefect.resource.id": "prefect.tag.courant",
            "prefect.resource.role": "tag",
        }
