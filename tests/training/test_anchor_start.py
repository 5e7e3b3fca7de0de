"""Learned anchors that start among the cells of the training cases."""

from __future__ import annotations

import numpy as np
import torch

from courant.experiment import Experiment
from courant.models import build
from courant.problems import open_problem
from courant.training.train import anchor_start, place_learned_anchors
from simgen.store.read import Dataset


def learned(experiment: Experiment, start: str = "cloud", **training: int) -> Experiment:
    return experiment.derive(
        model={"anchor_kind": "learned"}, data={"anchor_start": start}, training=training
    )


def start_of(experiment: Experiment, dataset: Dataset) -> torch.Tensor | None:
    return anchor_start(experiment, dataset, open_problem(experiment, dataset).normaliser)


def test_they_start_far_apart_in_the_domain_whatever_the_seed(
    dataset: Dataset, tiny: Experiment
) -> None:
    start = start_of(learned(tiny), dataset)
    assert start is not None and start.shape == (tiny.model.num_anchors, 3)
    assert torch.all(start[:, 2] == 0)  # a plane flow
    normaliser = open_problem(tiny, dataset).normaliser
    cells = np.concatenate([normaliser.points(dataset[c].points) for c in dataset.cases("train")])
    nearest = [np.linalg.norm(cells - place, axis=1).min() for place in start.numpy()]
    assert max(nearest) == 0
    between = torch.pdist(start)
    spread = np.linalg.norm(cells.max(0) - cells.min(0)) / np.sqrt(len(start))
    assert between.min() > 0.3 * spread
    assert start_of(learned(tiny, "box"), dataset) is None
    assert start_of(tiny.derive(data={"anchor_start": "cloud"}), dataset) is None
    for dimension in (2, 3):
        model = build(learned(tiny).derive(model={"dimension": dimension}).model)
        place_learned_anchors(model, start)
        assert torch.equal(model.learned_anchors, start[:, :dimension])
    again = start_of(learned(tiny, seed=7), dataset)
    assert again is not None and torch.equal(start, again)
