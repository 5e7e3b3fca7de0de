"""One tiny trained model for all tests of analyses."""

import pytest
import torch

import courant
from courant.prediction.surrogate import Surrogate
from courant.runs.directory import RunDirectory
from courant.training.loop import fit
from simgen.store.read import Dataset
from tests.training.conftest import dataset as dataset
from tests.training.waves import tiny_experiment


@pytest.fixture(scope="session")
def surrogate(dataset: Dataset, tmp_path_factory: pytest.TempPathFactory) -> Surrogate:
    torch.set_num_threads(1)
    run = RunDirectory(tmp_path_factory.mktemp("runs")) / "tiny"
    fit(tiny_experiment(epochs=1), dataset, run)
    return courant.load(run.url, device="cpu")
