"""`courant doctor` looks where it says that it looks, and promises no more than it found."""

import os

import pytest
from typer.testing import CliRunner

from flows.cli import observing
from flows.cli.app import app
from tests.flows.test_cli import courant


def test_an_unreachable_store_is_in_the_last_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(observing, "CHECKS", {"store": observing.CHECKS["store"]})
    away = {"COURANT_STORE": "s3://bucket/store", "AWS_ENDPOINT_URL": "http://127.0.0.1:9"}
    shown = CliRunner(env={"COLUMNS": "200", **away}).invoke(app, ["doctor"])
    assert shown.exit_code == 0
    first, *_, last = shown.stdout.strip().splitlines()
    assert first.split()[:2] == ["store", "missing"] and "cannot be reached" in first
    assert last.startswith("Datasets cannot be read")


def test_the_doctor_says_what_is_missing_and_how_to_get_it(tmp_path):
    (tmp_path / "gmsh.py").write_text("raise OSError('libGLU.so.1: cannot open')")
    garbage = "http://127.0.0.1:x/api"
    blind = {
        "PATH": str(tmp_path),
        "PREFECT_API_URL": garbage,
        "PYTHONPATH": f"{tmp_path}:{os.environ.get('PYTHONPATH', '')}",
    }
    ill = courant("doctor", **blind, COURANT_SCRATCH="/proc/none")
    assert ill.returncode == 0, ill.stderr
    lines = {line.split()[0]: line for line in ill.stdout.splitlines() if line.strip()}
    assert "missing" in lines["OpenFOAM"] and "apt-get install openfoam" in lines["OpenFOAM"]
    assert "set COURANT_SCRATCH" in lines["scratch"]
    assert f"{garbage} (PREFECT_API_URL) does not answer" in lines["Prefect"]
    assert "missing" in lines["gmsh"] and "libGLU.so.1" in lines["gmsh"]
    assert ill.stdout.splitlines()[-1].endswith("cases can not be solved.")


def test_the_doctor_finds_a_machine_that_solves_cases_well(tmp_path):
    well = courant("doctor", COURANT_STORE=str(tmp_path), COURANT_SCRATCH=str(tmp_path))
    assert well.stdout.splitlines()[-1].endswith("cases can be solved."), well.stdout
    assert "no dataset yet" in well.stdout
