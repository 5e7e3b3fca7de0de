import pytest
import torch

import simgen
from simgen.store.read import Dataset
from tests.training.waves import publish_waves

torch.set_num_threads(1)


@pytest.fixture(scope="session")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return simgen.open_dataset(
        publish_waves(str(tmp_path_factory.mktemp("store") / "cylinder-flow"))
    )
