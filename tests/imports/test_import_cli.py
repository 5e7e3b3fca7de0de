"""`courant dataset import`: what a person sees."""

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

import simgen
from simgen.cases.template import Varied
from tests.commands import called
from tests.imports.foam_cases import write_case

PARAMETER = "speed (m/s)=0/U:boundaryField/inlet/value[0]"


@pytest.fixture
def courant(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return lambda *words, **ends: called("dataset", *words, **ends).output


def test_a_folder_is_described_then_imported_and_listed(courant, tmp_path) -> None:
    for number in (1, 2, 3):
        write_case(tmp_path / f"Tunnel/run{number}", speed=number)
    write_case(tmp_path / "Tunnel/run4", speed=4, change=lambda case: (case / "1/T").unlink())
    (tmp_path / "Tunnel/run1/0.75/uniform").mkdir(parents=True)
    words = ["import", "openfoam", "Tunnel", "--fields", "U,T=heat", "--store", "store"]
    words += ["--parameter", PARAMETER]
    printed = courant(*words, "--dry-run")
    assert "store/tunnel: transient cases in 2 dimensions" in printed
    assert "heat (K): T, from T" in printed
    assert "parameter speed: 1 to 3 m/s" in printed
    bare = courant(*words[:-2], "--dry-run")
    assert f"differ in {PARAMETER.partition('=')[2]} (1 to 3)" in " ".join(bare.split())
    assert "differ" not in printed and "2 times, to 1 s" in printed
    assert "note: 1 test case will judge a model, which proves little" in printed
    assert "patches of kind wall: walls" in printed
    assert "skipped: run4: its time 1 has no T; it has U, p" in printed
    assert "left out: run1: times before 0 or without U or T in the case itself: 0.75" in printed
    assert "would import 3 new cases, 1 skipped, 1 left out" in printed
    assert not Path("store").exists()
    printed = courant(*words)
    assert "store/tunnel v1: 3 cases of the folder, 3 new, 1 skipped, 1 left out" in printed
    assert "run1" in courant(*words, "--dry-run") and "on record" in courant(*words, "--dry-run")
    # The report's command for further cases.
    again = shlex.split(simgen.open_dataset("store/tunnel")[0].provenance["command"])
    assert "3 cases of the folder, 0 new" in courant(*again[2:])
    assert "tunnel\tv1\t3" in courant("ls", "store")
    assert "imported from Tunnel" in courant("show", "store/tunnel")


def test_parameters_of_the_mesh_lead_to_the_command_of_a_template(courant, tmp_path) -> None:
    for number in (1, 2):
        case = write_case(tmp_path / f"Tunnel/run{number}", speed=number)
        (case / "system/blockMeshDict").write_text(f"scale {number};\n")
    words = ["import", "openfoam", "Tunnel", "--fields", "U", "--store", "my store", "--dry-run"]
    assert "system/blockMeshDict:scale (1 to 2)" in " ".join(courant(*words).split())
    printed = courant(*words, "--parameter", "scale=system/blockMeshDict:scale")
    (line,) = [each for each in printed.splitlines() if "courant generate" in each]
    command = shlex.split(line.partition("courant ")[2])
    place = str(tmp_path / "Tunnel/run1")
    assert command[:4] == ["generate", "tunnel-designs", "--template", place]
    assert Varied.parse(command[5]) == Varied.parse("scale=system/blockMeshDict:scale=1:2")
    assert command[6:] == ["--store", str(tmp_path / "my store")]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("nowhere", "--fields", "U"), "nowhere is not there"),
        ((".", "--fields", "U"), "holds no OpenFOAM case"),
        ((".", "--fields", "U", "--limit", "speed=1"), "expected one of courant"),
        ((".", "--fields", ","), "--fields names no field"),
        ((".", "--fields", "U", "--parameter", "nu=nu"), "is no place in a case's dictionaries"),
        ((".", "--fields", "U", "--parameters", "none.csv"), "none.csv cannot be read"),
    ],
)
def test_a_wrong_command_is_one_line(courant, words, says) -> None:
    printed = courant("import", "openfoam", *words, exit_code=1)
    assert says in printed and printed.count("\n") == 1


def on_terminal(encoding: str, *words: str) -> str:
    environment = {**os.environ, "PYTHONIOENCODING": encoding, "NO_COLOR": "1"}
    command = [sys.executable, "-m", "flows", "dataset", *words]
    ran = subprocess.run(command, env=environment, capture_output=True, timeout=300)
    printed = (ran.stdout + ran.stderr).decode(encoding)
    assert "Traceback" not in printed and ran.returncode == 0, printed
    return printed


@pytest.mark.parametrize(("encoding", "letter"), [("utf-8", b"\xfc"), ("ascii", b"\xc3\xbc")])
def test_names_of_any_letters_are_imported_and_shown(tmp_path, encoding, letter) -> None:
    folder = Path(os.fsdecode(os.fsencode(tmp_path) + b"/T" + letter + b"nnel"))
    for number in (1, 2):
        case = Path(os.fsdecode(os.fsencode(folder) + b"/r" + letter + b"n%d" % number))
        write_case(case, speed=number)
    words = ("import", "openfoam", str(folder), "--fields", "U", "--store", str(tmp_path / "store"))
    assert "2 new cases" in on_terminal(encoding, *words, "--name", "tunnel", "--dry-run")
    on_terminal(encoding, *words, "--name", "tunnel")
    assert "r-n1" in on_terminal(encoding, "show", str(tmp_path / "store/tunnel"))
