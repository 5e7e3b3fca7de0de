"""Flows hand their arguments to Prefect, which looks into each, sends them on and names the run."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import cloudpickle
import pytest
from prefect.utilities.engine import collect_task_run_inputs_sync

from courant.sweeps.space_files import load_space, shipped_spaces
from flows import solve_cases
from simgen.store.access.writer import DatasetWriter
from tests.store.conftest import SCHEMA, make_result


@pytest.mark.parametrize("name", shipped_spaces())
def test_a_search_space_is_no_mapping_to_prefect(name: str) -> None:
    assert collect_task_run_inputs_sync(load_space(name)) == set()


def test_designs_do_not_travel_with_the_flow_however_many_they_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    point = make_result(0).point
    points = [replace(point, parameters={"radius": number}) for number in range(3000)]
    writer = DatasetWriter.open(str(tmp_path / "store"), SCHEMA)
    found: list[Any] = []

    def flow(*parameters: object) -> None:
        work = solve_cases._current_work()
        # Prefect pickles the flow into the context of each task.
        found.extend([parameters, work.points, len(cloudpickle.dumps(solved_by))])

    solved_by = solve_cases.solve_all
    monkeypatch.setattr(solve_cases, "solve_all", flow)
    solve_cases.solve_cases(points, writer, solve_cases.Execution())
    parameters, worked_on, num_bytes = found
    assert parameters == (writer.url, 3000)
    assert worked_on == points
    assert num_bytes < 50_000


def test_the_run_that_solves_cases_says_how_many_and_for_which_dataset(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: dict[str, Any] = {"num_cases": 2, "dataset": "store/cylinder-flow"}
    monkeypatch.setattr("flows.solve_cases.flow_run", SimpleNamespace(parameters=asked))
    assert solve_cases.solve_all.flow_run_name() == "solve 2 cases for store/cylinder-flow"
    asked["num_cases"] = 1
    assert solve_cases.solve_all.flow_run_name() == "solve 1 case for store/cylinder-flow"
