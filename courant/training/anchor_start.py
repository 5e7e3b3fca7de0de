"""Start learned anchors where the training cases have cells.

The paper does not say where its learned anchors start. In the cube that holds all domains most of
them start outside of a domain that is long, flat or bent, and windows keep them from being read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor, nn

from courant.data.geometry import AnchorChoice
from courant.data.normalisation import Normaliser
from courant.experiment import Experiment
from courant.field_model import TrainsApart

if TYPE_CHECKING:
    from simgen.store.access.reader import Dataset

MAX_CASES = 32
MAX_POINTS = 65_536
"""Of all cases together: more would not move the anchors by a cell"""


def anchor_start(experiment: Experiment, dataset: Dataset, normaliser: Normaliser) -> Tensor | None:
    """Return where learned anchors start, (L, 3) in normalised coordinates.

    They are sampled from the union of the training cases' cells as anchors of one cloud are, so
    that trainings with different seeds start from the same anchors. None where the experiment has
    no learned anchors, or lets them start anywhere.
    """
    num_anchors = experiment.model.num_learned_anchors
    if experiment.data.anchor_start == "box" or not num_anchors:
        return None
    cases = dataset.cases("train")
    chosen = cases[:: -(-len(cases) // MAX_CASES)]
    clouds = []
    for case in chosen:
        points = normaliser.points(dataset[case].points)
        clouds.append(points[:: max(1, -(-len(points) * len(chosen) // MAX_POINTS))])
    union = torch.from_numpy(np.concatenate(clouds))[None]
    choice = AnchorChoice(num_anchors, by=experiment.data.anchors_by)
    return choice.among(union)[0]


@torch.no_grad()
def place_learned_anchors(model: nn.Module, start: Tensor | None) -> None:
    """Put a model's learned anchors at `start` (L, 3), and those of each member of an ensemble.

    They stay where they are if that is None.
    """
    if start is None:
        return
    for member in model.trained_apart() if isinstance(model, TrainsApart) else (model,):
        anchors = member.learned_anchors
        assert isinstance(anchors, Tensor)
        anchors.copy_(start[:, : anchors.shape[1]])
