"""What the page tells beside a prediction: solved neighbours, and what quantities depend on."""

import threading
from pathlib import Path

import pytest

import courant
import simgen
from bench.synthetic_cases import publish_cases
from courant.evaluation.quantities import Dependence
from courant.prediction.surrogate import Surrogate
from courant.serving import explorer
from courant.serving.predictions import Limits, RequestError
from simgen.case import CaseResult
from simgen.regression import Sensitivity
from simgen.store.schema import Schema
from tests.world import DESIGN, FAMILY, NUM_CASES, SETTINGS, SPACE, duct, share, trained_on_pipes


@pytest.fixture
def surrogate(pipes_run: str) -> Surrogate:
    return courant.load(pipes_run, device="cpu")


def solved_by(surrogate: Surrogate) -> explorer.Explored:
    return explorer.Explored(surrogate, Limits(), surrogate.open_dataset().url)


def nearest(
    solved: explorer.Explored, design: dict[str, float], newest: bool = False
) -> explorer.NearestDesigns:
    return solved.nearest(explorer.NearestRequest(parameters=design, newest=newest))


def test_the_nearest_solved_designs_have_their_parameters_split_and_the_solvers_quantities(
    surrogate: Surrogate,
) -> None:
    solved, number = solved_by(surrogate), 3
    stored = surrogate.open_dataset()[number]
    design = {**stored.parameters, "inlet_velocity": stored.parameters["inlet_velocity"] * 0.9}
    answer = nearest(solved, design)
    assert (answer.version, answer.reason, len(answer.designs)) == ("v1", "", explorer.NUM_NEAREST)
    first = answer.designs[0]
    assert (first.case, first.parameters, first.added) == (stored.id, stored.parameters, False)
    assert first.quantities["branch1_share"] == pytest.approx(share(number))
    assert first.quantities["pressure_loss"] is None, "it is not on record"
    assert first.split == surrogate.open_dataset().design.loc[stored.id, "split"]
    # The inlet's velocity has a range of 7 m/s and is one of five parameters.
    expected = 0.1 * stored.parameters["inlet_velocity"] / 7 / 5**0.5
    assert first.distance == pytest.approx(expected)
    distances = [each.distance for each in answer.designs]
    assert distances == sorted(distances)
    assert nearest(solved, dict(stored.parameters)).designs[0].distance == 0.0


def test_a_design_that_was_solved_since_is_found_once_it_is_looked_for(tmp_path: Path) -> None:
    surrogate = courant.load(trained_on_pipes(tmp_path), device="cpu")
    solved = solved_by(surrogate)
    before = nearest(solved, DESIGN)
    url, point = surrogate.open_dataset().url, FAMILY.point(DESIGN, SETTINGS)
    cloud = duct(60, SPACE.sample(1, "grid")[0], seed=9)
    added = CaseResult(point, "accepted", split="train")
    publish_cases(url, Schema.of(FAMILY), [(added, cloud)])
    assert nearest(solved, DESIGN) == before, "the table is kept"
    after = nearest(solved, DESIGN, newest=True)
    assert after.version == "v2" and len(simgen.open_dataset(url)) == NUM_CASES + 1
    assert (after.designs[0].case, after.designs[0].distance) == (point.id, 0.0)
    assert after.designs[0].added and after.designs[0].split == "train"
    assert [each.added for each in after.designs[1:]] == [False] * (explorer.NUM_NEAREST - 1)


def test_a_dataset_out_of_reach_is_reported_without_a_folder(
    surrogate: Surrogate, tmp_path: Path
) -> None:
    gone = nearest(explorer.Explored(surrogate, Limits(), str(tmp_path / "gone")), DESIGN)
    assert gone.designs == []
    assert "--dataset URL" in gone.reason and str(tmp_path) not in gone.reason
    assert nearest(explorer.Explored(surrogate, Limits()), DESIGN).reason == explorer.NOT_OPENED
    with pytest.raises(RequestError, match="missing baffle_angle"):
        nearest(solved_by(surrogate), {"aperture": 28})


def ended(explored: explorer.Explored) -> explorer.Dependences:
    for _ in range(3000):
        if explored.dependences().ready:
            break
        threading.Event().wait(0.02)
    return explored.dependences()


def test_indices_are_computed_once_while_others_are_answered(
    surrogate: Surrogate, monkeypatch: pytest.MonkeyPatch
) -> None:
    go, asked = threading.Event(), []
    indices = Sensitivity((0.5, 0.1, 0.0, 0.0, 0.2), (0.6, 0.2, 0.0, 0.0, 0.3), 0.9)

    def measure(*of: object) -> dict[str, Dependence]:
        asked.append(of)
        assert go.wait(60)
        return {"branch1_share": {"solved": None, "predicted": indices}}

    monkeypatch.setattr(explorer, "dependences", measure)
    study = solved_by(surrogate)
    assert not study.dependences().ready and not study.dependences().ready
    go.set()
    answer = ended(study)
    assert len(asked) == 1 and answer.ready and answer.reason == ""
    assert list(answer.quantities) == ["branch1_share"], "what the designs do not give is left out"
    found = answer.quantities["branch1_share"]
    assert found["solved"] is None and found["predicted"] is not None
    assert found["predicted"].first["baffle_angle"] == 0.5
    assert found["predicted"].total["inlet_velocity"] == 0.3 and found["predicted"].fit == 0.9


def test_where_there_are_no_indices_the_reason_is_reported(surrogate: Surrogate) -> None:
    few = ended(solved_by(surrogate))
    assert few.quantities == {} and "8 designs a parameter" in few.reason
    assert ended(explorer.Explored(surrogate, Limits())).reason == explorer.NOT_OPENED
