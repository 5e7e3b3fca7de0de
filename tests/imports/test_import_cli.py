"""`courant dataset import`: what a person sees."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from flows import terminal
from flows.cli.app import app
from tests.imports.foam_cases import write_case

PARAMETER = "speed (m/s)=0/U:boundaryField/inlet/value[0]"


@pytest.fixture
def courant(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(terminal.screen, "_width", 200)

    def run(*words, exit_code=0):
        ran = CliRunner().invoke(app, ["dataset", *words])
        assert ran.exit_code == exit_code, ran.output
        return ran.output

    return run


def test_a_folder_is_described_then_imported_and_listed(courant, tmp_path) -> None:
    for number in (1, 2, 3):
        write_case(tmp_path / f"Tunnel/run{number}", speed=number)
    write_case(tmp_path / "Tunnel/run4", speed=4, change=lambda case: (case / "1/T").unlink())
    words = ["import", "openfoam", "Tunnel", "--fields", "U,T=heat", "--store", "store"]
    words += ["--parameter", PARAMETER]
    told = courant(*words, "--dry-run")
    assert "store/tunnel: transient cases in 2 dimensions" in told
    assert "heat (K): T, from T" in told
    assert "parameter speed: 1 to 3 m/s" in told
    assert "patches of kind wall: walls" in told
    assert "refused run4: its time 1 has no T, which its time 0.5 has" in told
    assert "would import 3 new cases (" in told
    assert not Path("store").exists()
    told = courant(*words)
    assert "store/tunnel v1: 3 cases of the folder, 3 new, 1 refused" in told
    assert "run1" in courant(*words, "--dry-run") and "on record" in courant(*words, "--dry-run")
    assert "store/tunnel" in courant("ls", "--store", "store")
    assert "imported from Tunnel" in courant("show", "store/tunnel")


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("nowhere", "--fields", "U"), "nowhere is no folder"),
        ((".", "--fields", "U"), "holds no OpenFOAM case"),
        ((".", "--fields", "U", "--limit", "speed=1"), "is no limit"),
        ((".", "--fields", "U", "--kind", "wall"), "is no PATCH=KIND"),
        ((".", "--fields", "U", "--parameter", "nu=nu"), "is no place in a case's dictionaries"),
        ((".", "--fields", "U", "--parameters", "none.csv"), "none.csv does not exist"),
    ],
)
def test_a_wrong_command_is_one_line(courant, words, says) -> None:
    told = courant("import", "openfoam", *words, exit_code=1)
    assert says in told and told.count("\n") == 1
