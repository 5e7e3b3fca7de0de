"""What can be trained can be evaluated: windows begin at the first snapshot that is there, and time
means take as many snapshots as a short case has.
"""

from pathlib import Path

import numpy as np
import pytest

import simgen
from courant.data.normalisation import select_channels
from courant.evaluation.evaluate import evaluate
from courant.evaluation.references import MEAN_SNAPSHOTS, MeanFlow
from courant.runs.directory import RunDirectory
from courant.training.train import fit
from tests.world import publish_waves, tiny_experiment


@pytest.mark.parametrize(("start_s", "step_s"), [(10.0, 10.0), (28.0, 1.0), (0.0, 3.0)])
def test_the_training_mean_is_that_of_all_snapshots_of_a_short_case(
    tmp_path: Path, start_s: float, step_s: float
) -> None:
    """Not of one for each step: a run of 20 s with steps of 10 s has two."""
    dataset = simgen.open_dataset(publish_waves(str(tmp_path / "store/cylinder-flow")))
    (case,) = (dataset[id_] for id_ in dataset.cases("train")[:1])
    late = case["velocity"][:][np.asarray(case.time) >= start_s]
    assert len(late) <= MEAN_SNAPSHOTS
    mean = MeanFlow(dataset, select_channels(dataset.schema, ["velocity"]), start_s, step_s)
    ((_, found, _),) = (each for each in mean._cases[:1])
    np.testing.assert_allclose(found, late.mean(axis=0), rtol=1e-5, atol=1e-6)


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
