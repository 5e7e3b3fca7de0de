"""What a target of the Makefile needs of Debian is installed by it, and nothing else."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.infra.files import INFRA, ROOT


@pytest.fixture
def machine(tmp_path: Path) -> Path:
    """Programs of a root whose machine has no PostgreSQL; apt-get writes down what it is asked."""
    scripts = {
        "id": "echo 0",
        "ls": "exit 2",  # asked for PostgreSQL's server alone
        "apt-get": f'echo "$@" >> {tmp_path}/asked',
    }
    for name, script in scripts.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{script}\n")
        (tmp_path / name).chmod(0o755)
    return tmp_path


@pytest.mark.parametrize(("wanted", "installed"), [("rehearse", True), ("tests", False)])
def test_postgresql_is_installed_for_the_rehearsal_alone(
    machine: Path, wanted: str, installed: bool
) -> None:
    done = subprocess.run(
        [str(INFRA / "debian-packages"), sys.executable, wanted],
        env={**os.environ, "PATH": f"{machine}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    asked = (machine / "asked").read_text() if (machine / "asked").exists() else ""
    assert bool(re.search(r"^install .* postgresql\b", asked, re.M)) == installed


def test_make_rehearse_asks_for_it_first() -> None:
    makefile = (ROOT / "Makefile").read_text()
    (commands,) = re.findall(r"^rehearse: setup .*\n((?:\t.*\n)+)", makefile, re.M)
    first, second = commands.strip().splitlines()
    assert first.endswith("infra/debian-packages $(PYTHON) rehearse")
    assert second.strip().endswith("-m bench.rehearsal")
