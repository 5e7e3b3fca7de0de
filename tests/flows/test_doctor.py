"""`courant doctor` looks where it says that it looks, and promises no more than it found."""

import os
import socket
from pathlib import Path

import pytest
from typer.testing import CliRunner

from flows.cli import doctor
from simgen.errors import InputError
from tests.flows.test_cli import courant


@pytest.mark.parametrize("address", ["http://127.0.0.1:{}", "127.0.0.1:{}", "ray://127.0.0.1:{}"])
def test_it_tells_whether_anything_listens_at_the_address_of_ray(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        address = address.format(listening.getsockname()[1])
        monkeypatch.setenv("RAY_ADDRESS", address)
        with pytest.raises(InputError, match=r"\(RAY_ADDRESS\) does not answer"):
            doctor.CHECKS["Ray"]()
        listening.listen()
        assert doctor.CHECKS["Ray"]().endswith(f"{address} (RAY_ADDRESS) answers")


@pytest.mark.parametrize("address", ["", "auto", "local"])
def test_a_ray_of_this_machine_is_not_looked_for(address: str, monkeypatch) -> None:
    monkeypatch.setenv("RAY_ADDRESS", address)
    assert doctor.CHECKS["Ray"]()


def test_an_unreachable_store_is_in_the_last_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "CHECKS", {"store": doctor.CHECKS["store"]})
    away = {"COURANT_STORE": "s3://bucket/store", "AWS_ENDPOINT_URL": "http://127.0.0.1:9"}
    shown = CliRunner(env={"COLUMNS": "200", **away}).invoke(doctor.doctor_app, ["doctor"])
    assert shown.exit_code == 0
    first, *_, last = shown.stdout.strip().splitlines()
    assert first.split()[:2] == ["store", "missing"] and "cannot be reached" in first
    assert last.startswith("The store cannot be used: no dataset read, no model trained on it")


def test_a_scratch_folder_that_others_may_write_to_cannot_be_used(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    tmp_path.chmod(0o777)
    monkeypatch.setenv("COURANT_SCRATCH", str(tmp_path))
    with pytest.raises(InputError, match=str(tmp_path)):
        doctor.CHECKS["scratch"]()


def test_the_doctor_says_what_is_missing_and_how_to_get_it(tmp_path):
    (tmp_path / "gmsh.py").write_text("raise OSError('libGLU.so.1: cannot open')")
    blind = {"PATH": str(tmp_path), "PYTHONPATH": f"{tmp_path}:{os.environ.get('PYTHONPATH', '')}"}
    ill = courant("doctor", **blind, COURANT_SCRATCH="/proc/none")
    assert ill.returncode == 0, ill.stderr
    lines = {line.split()[0]: line for line in ill.stdout.splitlines() if line.strip()}
    assert "missing" in lines["OpenFOAM"] and "apt-get install openfoam" in lines["OpenFOAM"]
    assert "set COURANT_SCRATCH" in lines["scratch"]
    assert "missing" in lines["gmsh"] and "libGLU.so.1" in lines["gmsh"]
    assert ill.stdout.splitlines()[-1].endswith("cases can not be solved.")


def test_the_doctor_finds_a_machine_that_solves_cases_well(tmp_path):
    well = courant("doctor", COURANT_STORE=str(tmp_path), COURANT_SCRATCH=str(tmp_path))
    assert well.stdout.splitlines()[-1].endswith("cases can be solved."), well.stdout
    assert "no dataset yet" in well.stdout


@pytest.mark.parametrize("address", ["garbage", "http://127.0.0.1:x/api"])
def test_the_doctor_outlives_an_address_that_is_none(address):
    ill = courant("doctor", PREFECT_API_URL=address, RAY_ADDRESS=address)
    assert ill.returncode == 0
    assert f"{address} (PREFECT_API_URL) does not answer" in ill.stdout
    assert f"{address} (RAY_ADDRESS) does not answer" in ill.stdout
