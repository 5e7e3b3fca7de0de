"""Packed trajectories train as those of the store, and what was trained becomes a run."""

from pathlib import Path

import pytest
import torch

import courant
from bench import paper_cylinder
from courant.problems import open_problem
from courant.problems.transient import TransientProblem
from courant.runs.directory import RunDirectory
from courant.runs.record import EpochRecord, read_records
from courant.training.train import Fitting
from simgen.store.read import Dataset
from tests.world import tiny_experiment


def test_a_packed_training_goes_on_after_an_interruption_and_becomes_a_run(
    waves: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    experiment = tiny_experiment()
    monkeypatch.setattr(paper_cylinder, "get_recipe", lambda name: experiment)
    packed, trained = tmp_path / "packed", tmp_path / "trained"
    paper_cylinder.pack(waves.url, packed)
    _, sets = paper_cylinder.read_pieces(packed, torch.device("cpu"))
    problem = open_problem(experiment, waves)
    assert isinstance(problem, TransientProblem)
    for split, found in sets.items():
        stored = problem.open_split(waves, split)
        off = (found.frames - stored.frames).norm() / stored.frames.norm()
        assert off < 2 * paper_cylinder.TOLERANCE
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
        paper_cylinder.train(packed, trained, "adamw", seconds=1e6, short=True)
    monkeypatch.setattr(Fitting, "write", write)
    paper_cylinder.train(packed, trained, "adamw", seconds=1e6, short=True)
    assert [each.epoch for each in read_records(RunDirectory(trained))] == [1, 2, 3, 4]
    paper_cylinder.receive(trained, waves.url, str(tmp_path / "runs"))
    (run,) = (tmp_path / "runs").iterdir()
    assert courant.load(str(run)).predict_case(waves[0]).shape[0] == 2
