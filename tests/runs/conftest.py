"""A trained run that tests damage copies of."""

import shutil
from pathlib import Path

import pytest

from tests.world import World


@pytest.fixture(scope="session")
def trained(world: World) -> Path:
    """An evaluated run of one epoch; damage copies of it alone."""
    return Path(world.waves_run())


@pytest.fixture
def run(trained: Path, tmp_path: Path) -> Path:
    """A copy of it, to be damaged."""
    return Path(shutil.copytree(trained, tmp_path / "runs/tiny"))
