"""The rehearsal of images goes through the Dockerfile as an engine would."""

from pathlib import Path
from typing import Any

import pytest

from tests.infra.files import INFRA, load

IMAGES = INFRA / "images"
rehearse = load(IMAGES / "rehearse.py")
STAGES = rehearse.parse((IMAGES / "Dockerfile").read_text())


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
    stages = rehearse.needed(STAGES, "solving")
    assert [stage.name for stage in stages] == ["base", "solving-python", "runtime", "solving"]
    for stage in stages:
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
