"""The rehearsal of images goes through the Dockerfile as an engine would."""

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.infra.files import INFRA, ROOT, load

IMAGES = INFRA / "images"
rehearse = load(IMAGES / "rehearse.py")
STAGES = rehearse.parse((IMAGES / "Dockerfile").read_text())


@pytest.mark.parametrize(
    ("target", "stages"),
    [
        ("solving", ["base", "solving-python", "runtime", "solving"]),
        ("training", ["base", "training-python", "runtime", "training"]),
        ("workgroup", ["base", "training-python", "runtime", "training", "workgroup"]),
    ],
)
def test_only_the_stages_that_a_target_needs_are_built(target: str, stages: list[str]) -> None:
    assert [stage.name for stage in rehearse.needed(STAGES, target)] == stages


@pytest.fixture
def entered(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Commands that would have been run in a folder, with the state they would have had."""
    calls: list[Any] = []
    monkeypatch.setattr(rehearse, "enter", lambda *call: calls.append(call))
    return calls


def test_a_target_ends_as_its_account_with_its_variables_and_files(
    tmp_path: Path, entered: list[Any]
) -> None:
    (tmp_path / "debian/opt/courant/env").mkdir(parents=True)
    rehearsal = rehearse.Rehearsal(tmp_path, {"SNAPSHOT": "no", "REVISION": "abc"})
    for stage in rehearse.needed(STAGES, "solving"):
        rehearsal.build(stage)
    state = rehearsal.states["solving"]
    assert state.user == "10001:10001"
    assert state.folder == "/opt/courant/source"
    assert state.variables["COURANT_SCRATCH"] == "/scratch/courant"
    assert state.variables["PATH"].startswith("/opt/courant/env/bin:")
    steps = [command[-1].split()[0].rsplit("/", 1)[-1] for _, _, command, _ in entered]
    assert steps == ["system", "python", "account", "openfoam", "project", "finish"]
    project = next(call for call in entered if "project" in call[2][-1])
    assert project[1].variables["REVISION"] == "abc"
    place = tmp_path / "solving"
    assert (place / "opt/courant/source/simgen/errors.py").is_file()
    assert (place / "opt/courant/source/prefect.yaml").is_file()
    assert (place / "tmp/debian-packages").is_file()


def test_an_instruction_that_is_not_known_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "debian").mkdir()
    stages = rehearse.parse("FROM debian AS a\nADD file /file\n")
    with pytest.raises(rehearse.RehearsalError, match="ADD is an instruction"):
        rehearse.Rehearsal(tmp_path, {}).build(stages["a"])


@pytest.mark.parametrize(("wanted", "installed"), [("rehearse", True), ("tests", False)])
def test_postgresql_is_installed_for_the_rehearsal_alone(
    tmp_path: Path, wanted: str, installed: bool
) -> None:
    """By a root whose machine has none."""
    # `ls` is asked for PostgreSQL's server alone; apt-get writes down what it is asked.
    scripts = {"id": "echo 0", "ls": "exit 2", "apt-get": f'echo "$@" >> {tmp_path}/asked'}
    for name, script in scripts.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{script}\n")
        (tmp_path / name).chmod(0o755)
    subprocess.run(
        [INFRA / "debian-packages", sys.executable, wanted],
        env={**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"},
        check=True,
    )
    asked = (tmp_path / "asked").read_text() if (tmp_path / "asked").exists() else ""
    assert bool(re.search(r"^install .* postgresql\b", asked, re.M)) == installed
    makefile = (ROOT / "Makefile").read_text()
    assert "infra/debian-packages $(PYTHON) rehearse" in makefile
