"""A case of one's own goes from its dictionaries to a predicted design, by commands alone."""

import shlex
import socket
from pathlib import Path

import pytest

import simgen
from courant.prediction.surrogate import load
from simgen.cases import FAMILIES, TEMPLATES
from simgen.errors import InputError
from simgen.publish.card import how_to_make
from tests.commands import called
from tests.simgen.test_template import CASE, NU, SPEED, WIDTH

pytestmark = pytest.mark.openfoam
SMALL = {
    "training.epochs": "1",
    "training.samples_per_epoch": "8",
    "model.width": "16",
    "model.num_heads": "2",
    "model.num_anchors": "4",
    "model.num_levels": "1",
}


def test_a_case_is_varied_trained_on_and_asked_for_a_design(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("XDG_CACHE_HOME", "COURANT_SCRATCH"):
        monkeypatch.setenv(name, str(tmp_path / name))
    monkeypatch.setenv(TEMPLATES, "")
    monkeypatch.setattr(FAMILIES, "data", {**FAMILIES})

    lid = SPEED.replace("lidSpeed", "lidSpeed,lidSpeed")  # in two places, which are one here
    varied = [word for text in (lid, WIDTH, NU) for word in ("--vary", text)]
    varied += ["--quantity", "lid=average(U.x, lid)", "--quantity", "top=max(U)"]
    template = ("generate", "--template", str(CASE), *varied, "--store", "store")
    called(*template, "--cases", "4", "--set", "end_time=0.15")
    dataset = simgen.open_dataset("store/cavity-case")
    assert [each.name for each in dataset.schema.parameters] == ["speed", "W", "nu"]
    assert len(dataset.cases()) == 4
    assert [*dataset.design["lid"]] == pytest.approx([*dataset.design["speed"]])
    (remake,) = how_to_make(dataset, "again")
    called(*shlex.split(remake)[1:])
    assert {*simgen.open_dataset("again").cases()} == {*dataset.cases()}
    for case in map(dataset.__getitem__, dataset.cases()):
        assert case.time is not None and case.time.tolist() == [0.05, 0.1, 0.15]
        lid = case.boundary["velocity"][-1][case.boundary.points[:, 1] > 0.0999]
        assert lid[:, 0].max() == pytest.approx(case.parameters["speed"])

    def forget() -> None:
        known = {name: family for name, family in FAMILIES.items() if "cavity" not in name}
        monkeypatch.setattr(FAMILIES, "data", known)
        monkeypatch.setenv(TEMPLATES, "")

    forget()  # known beside its dataset from then on, without the case
    again = ("generate", "cavity-case", "--store", "store", "--set", "end_time=0.15")
    assert "4 cases" in called(*again, "--cases", "4").output
    settings = [word for item in SMALL.items() for word in ("--set", "=".join(item))]
    called("train", "store/cavity-case", "--runs", "runs", *settings)
    (folder,) = Path("runs").iterdir()
    shorter = ("generate", "cavity-case", "--store", "store", "--set", "end_time=0.1")
    assert "--set end_time=0.15" in called(*shorter, "--cases", "1").output
    forget()
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        assert port in called("explore", str(folder), "--port", port, exit_code=1).output
    for start, why in ((9.0, r"knows no state after 0\.15 s, where"), (0.07, "every 0.05 s; give")):
        with pytest.raises(InputError, match=why):
            load(folder).predict_design({"speed": 1.1, "W": 0.8, "nu": 0.01}, from_solver_s=start)
    soon = called("run", "cavity-case", "--out", ".", "--budget", "soon", exit_code=1)
    assert "budget 'soon'" in soon.output
    found = load(folder).predict_design({"speed": 1.1, "W": 0.8, "nu": 0.01}, from_solver_s=0.05)
    assert found.quantities["top"] > 0 and "lid" in found.not_predicted
    assert found.cloud.points[:, 0].max() < 0.08 and found.values.shape[1:] == (100, 3)
    # To the end of the cases the solver's quantities are those on record, over all their times.
    case = dataset[dataset.cases()[0]]
    whole = load(folder).predict_design(case.parameters, from_solver_s=0.05, verify=True)
    with pytest.warns(UserWarning, match="times to 0.1 s, .* to 0.15 s: 2 steps compare the same"):
        load(folder).predict_design(case.parameters, from_solver_s=0.05, verify=True, steps=1)
    row = dataset.design.loc[case.id]
    assert whole.times[-1] == pytest.approx(0.15) and "lid" in whole.solved_quantities
    assert whole.solved_quantities == pytest.approx({n: row[n] for n in whole.solved_quantities})
    forget()
    assert "cavity-case" in called("families", "--store", "store").output
    assert "average(U.x, lid)" in called("families", "cavity-case", "--store", "store").output
    asked = f"predict {folder} --design speed=1.1,W=0.8,nu=0.01 --verify --out x.vtu".split()
    assert "starts: from 0.05 to 0.15 s, a multiple of 0.05 s" in called(*asked, exit_code=1).output
    assert "name a family" in called("generate", "--store", "store", exit_code=2).output
    assert "give --template" in called(*again, *varied[:2], exit_code=1).output
