"""A trained run that tests damage copies of."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import torch

import simgen
from courant.evaluation.evaluate import evaluate
from courant.runs.directory import RunDirectory
from courant.training.loop import fit
from tests.training.waves import publish_waves, tiny_experiment


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An evaluated run of one epoch; damage copies of it alone."""
    torch.set_num_threads(1)
    folder = tmp_path_factory.mktemp("trained")
    run = RunDirectory(folder) / "tiny"
    fit(
        tiny_experiment(epochs=1),
        simgen.open_dataset(publish_waves(str(folder / "store/cylinder-flow"))),
        run,
    )
    evaluate(run.url)
    return folder / "tiny"


@pytest.fixture
def run(trained: Path, tmp_path: Path) -> Path:
    """A copy of it, to be damaged."""
    return Path(shutil.copytree(trained, tmp_path / "runs/tiny"))
