import pytest
import torch

from courant.experiment import Experiment
from simgen.store.read import Dataset
from tests.world import tiny_experiment

torch.set_num_threads(1)


@pytest.fixture(scope="session")
def dataset(waves: Dataset) -> Dataset:
    return waves


@pytest.fixture
def tiny() -> Experiment:
    return tiny_experiment()
