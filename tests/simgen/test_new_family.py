"""docs/families/a-new-family.md: its family is the one tested here, and it goes all the way to a
published version.
"""

import re
from pathlib import Path

import numpy as np
import pytest

import simgen
from simgen import cases
from simgen.case import SolvedCase
from simgen.solving.convert import convert
from simgen.solving.solve_case import solve_case
from simgen.store.access.writer import DatasetWriter
from simgen.store.format.layout import Schema
from tests.simgen.lid_cavity import LidCavity

HERE = Path(__file__)
PAGE = HERE.parents[2] / "docs/families/a-new-family.md"


def test_the_page_shows_the_code_that_is_tested():
    (code,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    tested = (HERE.parent / "lid_cavity.py").read_text()
    assert tested.endswith(code)
    assert len(PAGE.read_text().splitlines()) < 150


@pytest.mark.openfoam
def test_a_family_in_one_module_goes_from_designs_to_a_version(tmp_path, monkeypatch):
    family = LidCavity()
    monkeypatch.setitem(cases.FAMILIES, family.name, family)
    writer = DatasetWriter.open(str(tmp_path / "store/lid-cavity"), Schema.of(family))
    for parameters in family.design_space.sample(2, "sobol", 42):
        point = family.point(parameters, family.settings("trial"))
        result = solve_case(point, tmp_path / "scratch")
        assert result.status == "accepted", result.reason
        fork = writer.fork()
        fork.write(result, convert(SolvedCase(point, tmp_path / "scratch" / point.id)))
        writer.commit([fork])
    writer.publish("two cavities")
    dataset = simgen.open_dataset(str(tmp_path / "store/lid-cavity"))
    case = dataset[dataset.cases()[0]]
    velocity, lid = case["velocity"][:], case.parameters["lid_velocity"]
    assert velocity.shape == (case.num_points, 2)
    # Dragged along below the lid, and back above the floor: what goes one way comes back.
    top = case.points[:, 1] > 0.9 * case.points[:, 1].max()
    assert 0.1 * lid < velocity[top, 0].mean() < lid
    assert velocity[:, 0].min() < 0
    assert abs(np.average(velocity[:, 0], weights=case.volumes)) < 0.02 * lid
    assert np.array_equal(
        np.unique(case.boundary["velocity"][:, 0][case.boundary.patch == 0]), [np.float32(lid)]
    )
