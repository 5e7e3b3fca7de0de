"""Cases that fail: what is printed of them, and that they keep no other from being published."""

import os
from pathlib import Path

import pytest

from flows import executor, solving
from simgen import cases
from simgen.store.schema import Schema
from simgen.store.write import DatasetWriter

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
