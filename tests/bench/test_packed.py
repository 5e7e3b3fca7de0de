"""Packed trajectories train as those of the store, and what was trained becomes a run."""

from pathlib import Path

import pytest
import torch

import courant
from bench import packed
from courant.problems import open_problem
from courant.problems.steady import SteadySource
from courant.problems.transient import TransientProblem
from courant.recipes.compared import compared
from courant.runs.directory import RunDirectory
from courant.runs.record import EpochRecord, read_records
from courant.training.train import Fitting
from simgen.store.read import Dataset
from tests.world import tiny_experiment, tiny_steady


def test_a_packed_training_goes_on_after_an_interruption_and_becomes_a_run(
    waves: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    experiment = tiny_experiment()
    monkeypatch.setattr(packed, "get_recipe", lambda name: experiment)
    monkeypatch.setitem(packed.CONTENDERS, "waves", {"own": {}})
    folder, trained = tmp_path / "packed", tmp_path / "trained"
    packed.pack("waves", waves.url, folder)
    pieces, problem = packed.Packed.read(folder), open_problem(experiment, waves)
    assert isinstance(problem, TransientProblem)
    for split in ("train", "validation"):
        stored = problem.open_split(waves, split)
        found = pieces.trajectories(problem, split, torch.device("cpu"))
        off = (found.frames - stored.frames).norm() / stored.frames.norm()
        assert off < 2 * packed.TOLERANCE
        torch.testing.assert_close(found.points, stored.points)
        torch.testing.assert_close(found.anchors, stored.anchors)
        torch.testing.assert_close(found.distance, stored.distance, atol=1e-3, rtol=1e-3)

    write = Fitting.write

    def interrupted(self: Fitting, record: EpochRecord, keep: bool) -> None:
        if record.epoch == 3:
            raise KeyboardInterrupt
        write(self, record, keep)

    monkeypatch.setattr(Fitting, "write", interrupted)
    with pytest.raises(KeyboardInterrupt):
        packed.train(folder, trained, ["own"], [42], seconds=1e6, short=True)
    monkeypatch.setattr(Fitting, "write", write)
    packed.train(folder, trained, ["own"], [42], seconds=1e6, short=True)
    run = trained / "own-42"
    assert [each.epoch for each in read_records(RunDirectory(run))] == [1, 2, 3, 4]
    packed.receive(run, waves.url, str(tmp_path / "runs"))
    (received,) = (tmp_path / "runs").iterdir()
    assert courant.load(str(received)).predict_case(waves[0]).shape[0] == 2


def test_packed_steady_cases_are_those_of_the_store(
    ducts: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    experiment = tiny_steady()
    monkeypatch.setattr(packed, "get_recipe", lambda name: experiment)
    monkeypatch.setattr(packed, "POINTS", 30)
    packed.pack("ducts", ducts.url, tmp_path)
    pieces = packed.Packed.read(tmp_path)
    for each in (experiment, compared(experiment, "transolver")):
        problem = open_problem(each, ducts)
        for split in ("train", "validation", "test"):
            source = SteadySource(ducts, ducts.cases(split), problem)
            for number, found in enumerate(packed.Cases(pieces, problem, split).read_all("cpu")):
                stored = source.read(number)
                for cloud, values in (("points", "features"), ("query_points", "query_features")):
                    places, of = getattr(found, cloud), getattr(stored, cloud)
                    at = torch.cdist(places, of)[0].argmin(dim=1)
                    assert len(set(at.tolist())) == 30
                    torch.testing.assert_close(places, of[:, at])
                    near = {"atol": 2e-3, "rtol": 2e-3}
                    torch.testing.assert_close(
                        getattr(found, values), getattr(stored, values)[:, at], **near
                    )
                torch.testing.assert_close(found.targets, stored.targets[:, :, at], **near)
                torch.testing.assert_close(found.parameters, stored.parameters, **near)
