"""A series on disk is the old one or the new one, whole."""

import numpy as np
import pytest

from flows.cli import prediction_files as files
from flows.cli.prediction_files import write_series
from simgen.cell_mesh import points_shape
from simgen.errors import InputError

SHAPE = points_shape(np.eye(3))


def states(value: float, number: int = 3):
    return [(0.5 * step, {"p": np.full(3, value + step)}) for step in range(number)]


def test_a_series_that_cannot_be_finished_leaves_the_one_before(tmp_path, monkeypatch):
    write_series(SHAPE, states(1.0), tmp_path / "out.pvd")
    (tmp_path / "out" / "notes.txt").write_text("the user's own")
    before = {path.name: path.read_bytes() for path in (tmp_path / "out").iterdir()}
    write, written = files.write_state, []

    def full(shape, fields, out):
        if len(written) == 2:
            raise InputError(f"{out} cannot be written: No space left on device")
        written.append(out)
        write(shape, fields, out)

    monkeypatch.setattr(files, "write_state", full)
    with pytest.raises(InputError, match="No space left"):
        write_series(SHAPE, states(9.0), tmp_path / "out.pvd")
    assert {path.name: path.read_bytes() for path in (tmp_path / "out").iterdir()} == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out", "out.pvd"]
    monkeypatch.undo()
    left = tmp_path / "out" / ".out.part" / "out_00099.vtu"  # of a command that was killed
    left.parent.mkdir()
    left.write_text("half a file")
    write_series(SHAPE, states(9.0), tmp_path / "out.pvd")
    after = {path.name: path.read_bytes() for path in (tmp_path / "out").iterdir()}
    assert after.keys() == before.keys()
    assert after["out_00000.vtu"] != before["out_00000.vtu"]
    assert after["notes.txt"] == before["notes.txt"]
    assert 'file="out/out_00002.vtu"' in (tmp_path / "out.pvd").read_text()
