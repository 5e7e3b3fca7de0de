"""The stages as flows: their parameters, and what is shown of them."""

import inspect
import sys
from concurrent.futures import Future
from dataclasses import fields
from importlib.metadata import entry_points, packages_distributions
from pathlib import Path
from typing import Any

import pytest
from prefect.utilities.callables import parameter_schema

from flows import prefect_flows
from flows.request_models import MainJobRequest, options_of
from simgen.case import CaseResult
from tests.store.conftest import make_result


def test_a_flow_has_the_fields_of_its_request_as_described_parameters() -> None:
    schema = parameter_schema(prefect_flows.generate_and_train)
    infos = options_of(MainJobRequest)
    assert set(schema.properties) == {each.name for each in fields(MainJobRequest)} == set(infos)
    assert schema.required == []
    for name, info in infos.items():
        assert " ".join(schema.properties[name]["description"].split()) == info.help
    assert schema.properties["cores"]["default"] == 1
    train = inspect.signature(prefect_flows.train.fn)
    assert train.parameters["dataset"].default is inspect.Parameter.empty


def test_no_file_beside_the_flows_is_taken_for_an_installed_package() -> None:
    """Prefect puts the folder of a flow's file first on Python's path."""
    names = {path.stem for path in Path(prefect_flows.__file__).parent.iterdir()}
    taken = set(packages_distributions()) | sys.stdlib_module_names
    # `py.typed`, and a tool of the tests that has its command in a package of this name.
    assert names & taken <= {"py", "cli"}


@pytest.mark.parametrize(("num_cases", "num_tasks"), [(4, 4), (5, 3), (10, 4)])
def test_each_case_is_a_task_and_of_many_several_share_one(
    num_cases: int, num_tasks: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    tasks: list[list[CaseResult]] = []

    class Task:
        def submit(self, name: str, cases: list[Any]) -> "Task":
            tasks.append([point for point, _ in cases])
            return self

        def wait(self) -> None: ...

    def solve(points: Any, writer: Any, execution: Any, on_submit: Any) -> None:
        for point in points:
            on_submit(point, Future())

    monkeypatch.setattr(prefect_flows, "MOST_TASKS", 4)
    monkeypatch.setattr(prefect_flows, "_follow", Task())
    monkeypatch.setattr(prefect_flows.solving, "solve_cases", solve)
    points = [make_result(number).point for number in range(num_cases)]
    prefect_flows.solve_followed(points, None, None)  # type: ignore[arg-type]
    assert len(tasks) == num_tasks
    assert [point for task in tasks for point in task] == points


OURS = "deployment run generate-and-train"


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (f"{OURS} --watch", f"{OURS}/cylinder-flow --watch"),
        *[(same, same) for same in (f"{OURS}/other", "deployment run --id generate-and-train")],
        ("deployment inspect generate-and-train", "deployment inspect generate-and-train"),
    ],
)
def test_only_a_bare_name_of_ours_is_rewritten(monkeypatch, given: str, expected: str) -> None:
    """COURANT_DEPLOYMENT names the deployment of the bare name."""
    (entry,) = entry_points(group="prefect.plugins", name="courant")
    for variable, deployment in (("", "cylinder-flow"), ("of-mine", "of-mine")):
        monkeypatch.setenv("COURANT_DEPLOYMENT", variable)
        monkeypatch.setattr(sys, "argv", ["prefect", *given.split()])
        entry.load().setup_environment(ctx=None)
        assert sys.argv == ["prefect", *expected.replace("cylinder-flow", deployment).split()]
