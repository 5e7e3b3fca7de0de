"""Optimise, then prove: designs are chosen by what is known, solved, and learned from."""

import shlex
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from scipy.stats import qmc

import courant
import simgen
from courant.optimisation import Candidate, Emulator, Search, known_values, parse_limit, table_text
from courant.prediction.answers import Outcomes
from courant.prediction.bands import QuantityBand
from courant.runs import record
from flows.stages import Optimisation
from simgen.design_space import DesignPoint
from simgen.errors import InputError, SimgenError
from simgen.machine import start_of
from simgen.store.write import DatasetWriter
from tests import world as w


def search(**changed: Any) -> Search:
    return Search(run="/runs/a", dataset="/store/a", **changed)


def test_limits_are_read_and_kept_or_not() -> None:
    head, power = parse_limit("head>=60"), parse_limit(" shaft_power <= 9e2 ")
    assert (head.slack(61.0), head.slack(58.0)) == (1.0, -2.0)
    assert (power.quantity, power.slack(850.0)) == ("shaft_power", 50.0)
    for wrong in ("head=60", "head>60", "head>=high", "head>=nan", ">=3"):
        with pytest.raises(InputError, match="QUANTITY>=NUMBER"):
            parse_limit(wrong)


def test_the_best_keeps_the_limits_and_of_several_goals_there_is_a_front() -> None:
    values = {
        "a": {"gain": 3.0, "cost": 9.0},
        "b": {"gain": 2.0, "cost": 4.0},
        "c": {"gain": 1.0, "cost": 5.0},
        "d": {"gain": 1.0, "cost": 1.0},
        "e": {"gain": None, "cost": 0.0},
    }
    one = search(maximise=("gain",), limits=(parse_limit("cost<=6"),))
    assert one.front(values) == ["b"] and one.front({"a": values["a"]}) == []
    both = search(maximise=("gain",), minimise=("cost",))
    assert both.front(values) == ["a", "b", "d"]
    assert one.name != both.name != search(maximise=("gain",), minimise=("cost",), seed=1).name


def test_the_table_and_the_verdict_have_what_was_solved_beside_what_was_predicted() -> None:
    inside = Candidate(
        case="one",
        design={"x": 0.5},
        predicted={"gain": 4.0},
        bands={"gain": QuantityBand(half_width=0.5, kind="left out", level=0.75, num_cases=3)},
        status="accepted",
        solved={"gain": 4.4},
    )
    outside = inside.model_copy(update={"case": "two", "solved": {"gain": 4.6}})
    failed = Candidate(case="three", design={"x": 0.1}, predicted={}, status="failed", reason="log")
    known = {"old": {"gain": 4.5}}
    found = search(maximise=("gain",), known=known, candidates=(inside, outside, failed))
    assert [each.inside("gain") for each in found.candidates] == [True, False, None]
    assert "gain 4.6 (case two)" in found.verdict and "1 of 2 solved values" in found.verdict
    assert "the best known before had gain 4.5" in found.verdict
    vague = search(maximise=("gain",), limits=(parse_limit("gain>=5"),), known=known)
    wide, missed = vague.doubts(inside)
    assert "the band of gain is ± 0.5, the known designs differ by ± 0:" in wide
    assert missed.startswith("gain >= 5 is predicted to be missed (4)")
    rows = table_text(found).splitlines()
    assert rows[0].split(",")[:4] == ["solve", "case", "status", "x"] and len(rows) == 4
    assert rows[1].endswith('4.0,0.5,"75% left out, 3 cases",4.4,True,True,False')
    assert rows[2].endswith("False,True,True")


@pytest.fixture(scope="module")
def plane() -> tuple[np.ndarray, np.ndarray]:
    """24 designs, and values: a hill around (0.5, -0.5), and the first coordinate."""
    designs = 2 * qmc.Halton(2, rng=0).random(24) - 1
    hill = -((designs - (0.5, -0.5)) ** 2).sum(axis=1)
    return designs, np.stack([hill, designs[:, 0]], axis=1)


@pytest.mark.parametrize(
    ("limits", "best"), [((), (0.5, -0.5)), (("side<=0.2",), (0.2, -0.5)), (("side>=0.8",), None)]
)
def test_a_candidate_is_where_the_objective_is_best_and_limits_are_kept(
    plane: tuple[np.ndarray, np.ndarray], limits: tuple[str, ...], best: Any
) -> None:
    asked = search(maximise=("hill",), limits=tuple(map(parse_limit, limits or ("side>=-9",))))
    emulator = Emulator(asked, *plane)
    solved_everywhere = Outcomes(designs=((0.0, 0.0),), unsolved=(False,))
    place = emulator.propose(solved_everywhere, 1)
    np.testing.assert_allclose(place, best or (0.8, -0.5), atol=0.12)
    np.testing.assert_array_equal(place, emulator.propose(solved_everywhere, 1))
    on_record = Outcomes(designs=((0.0, 0.0), tuple(place.tolist())), unsolved=(False, False))
    assert np.linalg.norm(emulator.propose(on_record, 1) - place) >= 1e-3
    mean = emulator.model.posterior(torch.tensor([[0.5, -0.5]], dtype=torch.double)).mean
    assert mean[0, 0].item() == pytest.approx(0.0, abs=0.02)


def test_a_limit_below_all_values_changes_nothing_where_they_span_a_decade(
    plane: tuple[np.ndarray, np.ndarray],
) -> None:
    designs, values = plane
    solved_everywhere, places = Outcomes(designs=((0.0, 0.0),), unsolved=(False,)), []
    for limit in ("cost>=1e-9", "cost>=0", "cost>=-3"):
        asked = search(minimise=("cost",), limits=(parse_limit(limit),))
        emulator = Emulator(asked, designs, np.exp(-3 * values[:, :1]))
        emulator.check_reachable()
        places.append(emulator.propose(solved_everywhere, 1))
    assert places[0] == pytest.approx(np.array([0.5, -0.5]), abs=0.12)
    np.testing.assert_allclose(places, places[:1] * 3, atol=1e-6)


def test_two_goals_are_searched_for_at_once(plane: tuple[np.ndarray, np.ndarray]) -> None:
    asked = search(maximise=("hill",), minimise=("side",))
    place = Emulator(asked, *plane).propose(Outcomes(designs=((0.0, 0.0),), unsolved=(False,)), 1)
    assert place[1] == pytest.approx(-0.5, abs=0.15) and place[0] < 0.6


def test_what_cannot_be_searched_for_is_an_error_that_names_it(
    plane: tuple[np.ndarray, np.ndarray],
) -> None:
    designs, values = plane
    far = search(maximise=("hill",), limits=(parse_limit("side>=3"),))
    with pytest.raises(InputError, match="no design can be expected to have side >= 3"):
        Emulator(far, designs, values).check_reachable()
    torn = tuple(map(parse_limit, ("side>=0.9", "hill>=-0.01")))
    with pytest.raises(InputError, match=r"to have both side >= 0.9 and hill >= -0.01"):
        Emulator(search(maximise=("hill", "side"), limits=torn), designs, values).check_reachable()
    unknown = np.where(np.arange(24)[:, None] < 21, np.nan, values)
    with pytest.raises(InputError, match=r"hill is on record .* 3 training .* needs 4"):
        Emulator(search(maximise=("hill",)), designs, unknown[:, :1])


@pytest.fixture
def trained(tmp_path: Path) -> str:
    """A run on pipes of a coarse mesh, whose pressure loss is that of a formula."""

    def figures(_: int, point: DesignPoint) -> dict[str, float]:
        return {"pressure_loss": 2 * point.parameters["inlet_velocity"] ** 2, "peak_speed": np.nan}

    return w.trained_on_pipes(tmp_path, 14, figures)


def test_what_was_withdrawn_since_is_neither_known_nor_the_best(trained: str) -> None:
    stage = Optimisation(run=trained, minimise=["pressure_loss"], solves=1)
    search = stage.asked
    (best,), name = search.front(search.known), "pressure_loss"
    solved = Candidate(case=best, design={}, predicted={}, status="accepted", solved={name: 1.0})
    stage.folder.write_json("search.json", search.of(solved).model_dump(mode="json"))
    dataset = simgen.open_dataset(search.dataset)
    DatasetWriter.open(dataset.url, dataset.schema).withdraw([best], "a wrong mesh")
    found = Optimisation(run=trained, minimise=[name], solves=1).read()
    assert best not in found.solved and len(found.known) == len(search.known) - 1
    (again,) = found.candidates
    assert (again.status, again.reason, again.solved) == ("withdrawn", "a wrong mesh", {})


@pytest.mark.openfoam
@pytest.mark.filterwarnings("ignore:.*outside the training domain")
def test_candidates_are_solved_added_to_the_training_split_and_learned_from(
    trained: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COURANT_SCRATCH", str(tmp_path / "scratch"))
    asked = {"run": trained, "minimise": ["pressure_loss"]}
    with pytest.raises(InputError, match="branched-pipe has no quantity drag: they are pressure_l"):
        Optimisation(run=trained, maximise=["drag"]).check()
    with pytest.raises(InputError, match=r"peak_speed is on record .* 0 training"):
        Optimisation(run=trained, maximise=["peak_speed"]).check()
    # A solver that fails every time: counted, and one line.
    lost = Optimisation(**asked, solves=1, seed=1, time_limit_s=0.01)
    with pytest.raises(SimgenError, match="none of 1 candidates has an accepted solution"):
        lost.execute()
    assert simgen.open_dataset(lost.asked.dataset).version == "v1", "a record, and no version"
    with pytest.raises(SimgenError, match="none of 1 candidates"):
        lost.done()

    stage, before = Optimisation(**asked, solves=1), courant.load(trained).answers
    assert stage.done() is None
    found = stage.execute()
    assert stage.done() == found
    rows = pd.read_csv(stage.folder.url + "/optimum.csv")
    assert rows["status"].tolist() == ["accepted"] and Path(found.page).stat().st_size > 10_000
    none = stage.read().model_copy(update={"limits": (parse_limit("pressure_loss<=0"),)})
    with pytest.raises(SimgenError, match="No design found keeps the limits: minimise pressure"):
        stage._result(none)
    best = f"{stage.folder.url}/best.csv"
    finer = shlex.split(found.verdict.rpartition("  ")[2])
    iterations = 2 * w.SETTINGS["max_iterations"]
    assert finer[:5:2] == ["courant", "branched-pipe", best]
    assert f"--set=max_iterations={iterations:g}" in finer
    newest = simgen.open_dataset(stage.asked.dataset)
    case = newest[rows["case"][0]]
    assert case.id in newest.cases("train") and case.id not in stage.read().known
    front = stage.read().front(stage.read().solved)
    assert w.FAMILY.design_space.read_csv(best) == [
        pytest.approx(newest.records[each]["parameters"], rel=1e-5) for each in front
    ]
    assert case.provenance["note"] == f"courant optimise {trained}: minimise pressure_loss"
    names = ("pressure_loss",)
    assert known_values(newest, names, {**case.settings, "mesh_size": 9.0}) == {}
    assert len(known_values(newest, names, case.settings)) == 12 + 1
    solved = newest.design.loc[case.id, "pressure_loss"]
    assert rows["pressure_loss_solved"][0] == pytest.approx(solved)
    answers = courant.load(trained).answers
    assert answers.version == newest.version and len(answers.designs) == 12 + 1
    at = newest.cases("train").index(case.id)  # those of the validation come after these
    assert answers.designs[at] == tuple(courant.load(trained).scaled(case.parameters))
    # Bands are of designs that were drawn: a candidate is fitted, and gives no error of theirs.
    (loss,) = answers.quantities.values()
    # With this one values span a decade, so deviations are shares of them.
    drawn = before.quantities["pressure_loss"].scores
    assert loss.values[at] == solved and loss.scores == pytest.approx(drawn, rel=0.3)

    # Cut off while its next candidate is solved, the same request solves that one.
    folder, kept_so_far = stage.folder, stage.read()
    other = {**case.parameters, "duct_angle": 97.5}
    left = Candidate(case=stage._generation(other).points[0].id, design=other, predicted={})
    candidates = (*kept_so_far.candidates, left)
    kept = kept_so_far.model_copy(update={"candidates": candidates}).model_dump(mode="json")
    folder.write_json("search.json", kept)
    again = Optimisation(**asked, solves=2)
    with subprocess.Popen(["sleep", "60"]) as process:
        beat = {"process": process.pid, "process_started": start_of(process.pid)}
        folder.write_json(record.HEARTBEAT, {**beat, "host": record.platform.node()})
        monkeypatch.setattr(record, "ENDING_S", 0.0)
        with pytest.raises(record.InUseError, match="is in use by process"):
            again.execute()
        process.kill()
    again.execute()
    assert [each.case for each in again.read().candidates] == [case.id, left.case]
