import shutil
from pathlib import Path

import pytest


@pytest.fixture
def run(waves_run: str, tmp_path: Path) -> Path:
    """A copy of an evaluated run of one epoch, to be damaged."""
    return Path(shutil.copytree(waves_run, tmp_path / "runs/tiny"))
