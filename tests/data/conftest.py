from dataclasses import fields
from typing import Any

import pytest
import torch

import simgen
from courant.data.batch import Batch
from courant.data.geometry import AnchorChoice
from courant.data.normalisation import Normaliser
from courant.data_config import SampleData, SteadyData
from courant.problems.steady import SteadyProblem
from courant.problems.transient import TransientProblem
from simgen.store.read import Dataset
from tests.training.ducts import publish_ducts, tiny_steady
from tests.training.waves import publish_waves, tiny_experiment

torch.set_num_threads(1)


@pytest.fixture(scope="session")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return simgen.open_dataset(
        publish_waves(str(tmp_path_factory.mktemp("store") / "cylinder-flow"))
    )


@pytest.fixture(scope="session")
def ducts(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return simgen.open_dataset(
        publish_ducts(str(tmp_path_factory.mktemp("store") / "branched-pipe"))
    )


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
