"""Training fields are carried to the points of another case by nearest cell."""

from __future__ import annotations

from pathlib import Path

import numpy as np

import simgen
from courant.data.normalisation import Normaliser
from courant.evaluation.references import TrainingFields
from courant.problems.steady import read_solution
from tests.world import publish_ducts, tiny_steady


def test_they_are_standardised_and_without_the_case_itself(tmp_path: Path) -> None:
    dataset = simgen.open_dataset(publish_ducts(str(tmp_path / "ducts")))
    normaliser = Normaliser.of(dataset, tiny_steady().data.fields)
    fields = TrainingFields(dataset, normaliser)
    train = dataset.cases("train")
    own, others = dataset[train[0]], [dataset[name] for name in train[1:]]
    found = fields.at(own.points, without=own.id)
    assert len(found) == len(others) >= 2
    for values, case in zip(found, others, strict=True):
        away = np.linalg.norm(case.points[:, None] - own.points, axis=-1)
        solved = read_solution(case, normaliser)[away.argmin(axis=0)]
        np.testing.assert_allclose(values, normaliser.standardise(solved), rtol=1e-5, atol=1e-5)
    stranger = dataset[dataset.cases("test")[0]]
    assert len(fields.at(stranger.points, without=stranger.id)) == len(train)
    assert len(fields.at(stranger.points, without=stranger.id, most=1)) == 1
