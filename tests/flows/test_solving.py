"""Cases that fail: what is printed of them, and that they keep no other from being published."""

import os
import tarfile
from pathlib import Path

import pytest

from flows import executor, solving
from simgen import cases
from simgen.foam.templates import write_dictionaries
from simgen.store.schema import Schema
from simgen.store.write import DatasetWriter
from tests.simgen import heated_plate


def write_cracked(templates: Path, directory: Path, values: dict[str, float | str]) -> None:
    """Name a vertex that is not there."""
    write_dictionaries(templates, directory, values)
    mesh = directory / "system/blockMeshDict"
    text = mesh.read_text()
    assert text.count("(0 1 4 3 6 7 10 9)") == 1
    mesh.write_text(text.replace("(0 1 4 3 6 7 10 9)", "(0 1 4 3 6 7 10 99)"))


@pytest.mark.openfoam
def test_a_failed_case_is_told_with_openfoams_own_error_and_its_archive(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    family = heated_plate.HeatedPlate()
    monkeypatch.setitem(cases.FAMILIES, family.name, family)
    monkeypatch.setattr(heated_plate, "write_dictionaries", write_cracked)
    monkeypatch.setenv("COURANT_SCRATCH", str(tmp_path / "scratch"))
    url = str(tmp_path / "store/heated-plate")
    (parameters,) = family.design_space.sample(1, "sobol", 42)
    point = family.point(parameters, family.settings("quick"))
    writer = DatasetWriter.open(url, Schema.of(family))
    ended = solving.solve(point, writer.fork(), url, solving.Execution())
    assert ended.status == "failed"
    reason, _, archive = ended.reason.partition("; archive: ")
    assert archive == str(tmp_path / f"store/failed/heated-plate/{point.id}.tar.gz")
    assert "blockMesh ended with exit code 1 at t = 0 s: Point label 99 out of range" in reason
    assert "\n" not in ended.reason
    with tarfile.open(archive) as packed:
        assert f"{point.id}/blockMesh.logfile" in packed.getnames()
    assert not (tmp_path / "scratch" / point.id).exists()


#: Kills the worker, which has started this program by another.
DEADLY = "#!/bin/sh\nkill -9 $(awk '{print $4}' /proc/$PPID/stat)\nsleep 60\n"


@pytest.mark.openfoam
def test_a_case_that_ends_its_worker_every_time_is_on_record_as_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    family = cases.get_family("cylinder-flow")
    (parameters,) = family.design_space.sample(1, "sobol", 42)
    point = family.point(parameters, family.settings("trial", {"end_time": 5, "mesh_size": 2}))
    (tmp_path / "icoFoam").write_text(DEADLY)
    (tmp_path / "icoFoam").chmod(0o700)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setenv("COURANT_SCRATCH", str(tmp_path / "scratch"))
    monkeypatch.setattr(executor, "PAUSE_S", 0.0)
    writer = DatasetWriter.open(str(tmp_path / "store/cylinder-flow"), Schema.of(family))
    solving.solve_cases([point], writer, solving.Execution())
    assert writer.known() == {point.id: "failed"}
