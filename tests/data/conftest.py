from dataclasses import fields
from typing import Any

import torch

from courant.data.batch import Batch
from courant.data.geometry import AnchorChoice
from courant.data.normalisation import Normaliser
from courant.experiment import SampleData, SteadyData
from courant.problems.steady import SteadyProblem
from courant.problems.transient import TransientProblem
from simgen.store.read import Dataset
from tests.world import tiny_experiment, tiny_steady

torch.set_num_threads(1)


def problem_on(dataset: Dataset, config: SampleData) -> Any:
    """A problem with six anchors, whatever its model."""
    is_steady = isinstance(config, SteadyData)
    like = tiny_steady() if is_steady else tiny_experiment()
    experiment = like.model_copy(update={"data": config})
    kind = SteadyProblem if is_steady else TransientProblem
    problem = kind(experiment, Normaliser.of(dataset, config.fields))
    problem.anchors = AnchorChoice(6)
    return problem


def assert_same(first: Batch, second: Batch) -> None:
    for field in fields(Batch):
        one, other = getattr(first, field.name), getattr(second, field.name)
        assert (one is None) == (other is None), field.name
        assert one is None or torch.equal(one, other), field.name


def assert_drawn(drawn: Batch, whole: Batch) -> None:
    """Points and queries of each sample are distinct ones of its case, with their values."""
    for row in range(len(drawn.points)):
        places = torch.cdist(drawn.query_points[row], whole.query_points[row]).argmin(1)
        assert len(places.unique()) == drawn.query_points.shape[1]
        assert torch.equal(drawn.targets[row], whole.targets[row][:, places])
        assert torch.equal(drawn.query_features[row], whole.query_features[row, places])
        places = torch.cdist(drawn.points[row], whole.points[row]).argmin(1)
        assert torch.equal(drawn.features[row], whole.features[row, places])
