"""What can be trained can be evaluated: windows begin at the first snapshot that is there."""

from pathlib import Path

import simgen
from courant.evaluation.evaluate import evaluate
from courant.runs.directory import RunDirectory
from courant.training.loop import fit
from tests.training.waves import publish_waves, tiny_experiment


def test_a_dataset_that_begins_after_the_experiments_start_is_evaluated_from_its_first_snapshot(
    tmp_path: Path,
) -> None:
    dataset = simgen.open_dataset(publish_waves(str(tmp_path / "store/cylinder-flow")))
    run, experiment = RunDirectory(tmp_path / "run"), tiny_experiment(epochs=1)
    assert experiment.data.start_s == 0.0 and dataset[0].time[0] == 1.0
    fit(experiment, dataset, run)
    (case,) = evaluate(run.url).cases.values()
    # From 1 to 30 s windows of 6 s begin every step of 3 s, from 1 to 22 s.
    assert case.windows == 8
