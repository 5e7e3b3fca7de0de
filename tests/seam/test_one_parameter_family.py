"""A family of one design parameter goes from its solver to a report, with a fitted experiment."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

import pytest
import torch

import simgen
from bench.synthetic_cases import publish_cases
from courant.evaluation.evaluate import evaluate
from courant.recipes.fitted import fitted_recipe
from courant.report.report import write_report
from courant.runs.directory import RunDirectory
from courant.training.train import fit
from simgen import cases
from simgen.case import SolvedCase
from simgen.design_space import DesignPoint, DesignSpace, Parameter
from simgen.publish.card import write_card
from simgen.solving.convert import convert
from simgen.solving.solve_case import solve_case
from simgen.store.schema import Schema
from tests.simgen.lid_cavity import LidCavity

torch.set_num_threads(1)


class Square(LidCavity):
    """The cavity of one height, so that the lid's velocity is all there is to choose."""

    name = "square-cavity"
    design_space = DesignSpace((Parameter("lid_velocity", "m/s", 0.5, 2.0, "of the upper wall"),))
    presets: ClassVar[Mapping[str, Mapping[str, float]]] = {
        "trial": {"end_time": 0.3, "mesh_size": 0.2}
    }

    def write_case(self, point: DesignPoint, directory: Path) -> None:
        super().write_case(
            replace(point, parameters={**point.parameters, "height": 1.0}), directory
        )


@pytest.mark.openfoam
def test_one_parameter_goes_from_the_solver_to_the_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    family = Square()
    monkeypatch.setitem(cases.FAMILIES, family.name, family)
    url = str(tmp_path / "store/square-cavity")
    solved = []
    for parameters in family.design_space.sample(4, "grid"):
        point = family.point(parameters, family.settings("trial"))
        result = solve_case(point, tmp_path / "scratch")
        assert result.status == "accepted", result.reason
        solved.append((result, convert(SolvedCase(point, tmp_path / "scratch" / point.id))))
    dataset = simgen.open_dataset(publish_cases(url, Schema.of(family), solved))
    assert "from the smallest lid_velocity" in write_card(dataset, tmp_path / "card").read_text()
    experiment = fitted_recipe(dataset).derive(
        model={"width": 24, "num_heads": 2, "num_anchors": 8, "num_levels": 1},
        training={"epochs": 3, "samples_per_epoch": 8, "warmup_steps": 0},
    )
    assert experiment.model.num_parameters == 1
    run = RunDirectory(tmp_path / "run")
    fit(experiment, dataset, run)
    assert evaluate(run.url).references == ("nearest design", "training mean")
    page = Path(write_report(run.url, str(tmp_path / "report"))).read_text()
    assert "lid velocity" in page
    assert (tmp_path / "report/designs.png").exists()
