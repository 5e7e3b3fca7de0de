import pytest
import torch

import simgen
from simgen.store.read import Dataset
from tests.training.ducts import publish_ducts
from tests.training.waves import publish_waves

torch.set_num_threads(1)


@pytest.fixture(scope="session")
def ducts(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    """A steady dataset with design parameters and solve times."""
    place = tmp_path_factory.mktemp("store") / "branched-pipe"
    return simgen.open_dataset(publish_ducts(str(place), num_cases=14))


@pytest.fixture(scope="session")
def waves(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    place = tmp_path_factory.mktemp("store") / "cylinder-flow"
    return simgen.open_dataset(publish_waves(str(place)))
