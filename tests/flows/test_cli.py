"""The command line as a person meets it: help at once, with examples; bad requests refused before
anything starts.
"""

import json
import os
import re
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest
from typer.testing import CliRunner

from courant.experiment import parse_experiment
from courant.recipes import RECIPES, get_recipe
from flows.cli.app import app
from simgen.cases import FAMILIES, get_family

COURANT = Path(sys.executable).parent / "courant"


def courant(*arguments, **environment):
    return subprocess.run(
        [str(COURANT), *arguments],
        capture_output=True,
        text=True,
        timeout=600,
        env={**os.environ, "COLUMNS": "200", **environment},
    )


def courant_here(*arguments):
    """The same in this process, for the many that only differ in their words."""
    return CliRunner(env={"COLUMNS": "200"}).invoke(app, list(arguments))


def test_help_needs_none_of_the_heavy_libraries():
    code = (
        "import sys, flows.cli.app; print(sorted({'torch', 'ray', 'prefect', 'zarr', 'gmsh'} &"
        " set(sys.modules)))"
    )
    found = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=600
    )
    assert found.stdout.strip() == "[]", found.stderr


@pytest.mark.parametrize(
    "command",
    ["run", "generate", "train", "sweep", "benchmark", "evaluate", "report", "predict", "serve"]
    + ["families", "doctor", "recipes show"]
    + [f"runs {name}" for name in ("ls", "show", "compare")]
    + [
        f"dataset {name}"
        for name in (
            "ls",
            "show",
            "versions",
            "diff",
            "verify",
            "export",
            "export-vtu",
            "card",
            "gc",
        )
    ],
)
def test_every_command_explains_itself_with_an_example(command):
    shown = courant_here(*command.split(), "--help")
    assert shown.exit_code == 0
    assert "Example: courant" in shown.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["generate", "teapot"], "family 'teapot' is unknown; choose one of cylinder-flow"),
        (
            ["generate", "cylinder-flow", "--preset", "quick"],
            "preset 'quick' is unknown to cylinder-flow; choose one of paper, trial",
        ),
        (
            ["generate", "cylinder-flow", "--set", "end_time=-1"],
            "end_time = -1 s is outside its range",
        ),
        (["generate", "cylinder-flow", "--set", "colour=1"], "unknown colour; expected end_time"),
        (["generate", "cylinder-flow", "--designs", "nowhere.csv"], "nowhere.csv does not exist"),
        (["run", "teapot"], "family 'teapot' is unknown"),
        (["run", "--dataset", "/nowhere/at-all"], "there is no dataset at /nowhere/at-all"),
        (["dataset", "show", "/nowhere/at-all"], "there is no dataset at /nowhere/at-all"),
        (["dataset", "ls", "--store", "/nowhere"], "no dataset in /nowhere"),
        (["dataset", "versions", "/nowhere/at-all"], "there is no dataset at /nowhere/at-all"),
        (
            ["dataset", "diff", "/nowhere/at-all", "v1", "v2"],
            "there is no dataset at /nowhere/at-all",
        ),
        (["dataset", "verify", "/nowhere/at-all"], "there is no dataset at /nowhere/at-all"),
        (["dataset", "export", "/nowhere/at-all", "x"], "there is no dataset at /nowhere/at-all"),
        (["dataset", "card", "/nowhere/at-all"], "there is no dataset at /nowhere/at-all"),
        (["dataset", "gc", "/nowhere/at-all"], "there is no dataset at /nowhere/at-all"),
        (["benchmark", "/nowhere/at-all"], "there is no dataset at /nowhere/at-all"),
        (["sweep", "/nowhere/at-all"], "there is no dataset at /nowhere/at-all"),
        (["train", "/nowhere/at-all"], "there is no dataset at /nowhere/at-all"),
        (
            ["predict", "/nowhere/run", "abc", "--out", "x.npz"],
            "/nowhere/run has no experiment.json",
        ),
        (["report", "/nowhere/run"], "/nowhere/run"),
        (
            ["predict", "/nowhere/run", "case.vtu", "--out", "x.vtu"],
            "case.vtu does not exist; name a mesh file, or the id of a stored case",
        ),
        (
            ["predict", "RUN", "case.vtu", "--start", "1", "--out", "x.vtu"],
            "--start belongs to a stored case",
        ),
        (["serve", "/nowhere/run"], "/nowhere/run has no experiment.json"),
    ],
)
def test_a_bad_request_is_one_line_on_stderr_and_exit_code_one(arguments, message):
    refused = courant_here(*arguments)
    assert refused.exit_code == 1, refused.stderr
    assert refused.stderr.startswith("error: ")
    assert message in refused.stderr
    assert len(refused.stderr.strip().splitlines()) == 1
    assert "Traceback" not in refused.stderr + refused.stdout


def test_a_refused_command_ends_with_one_line_and_code_one():
    refused = courant("train", "/nowhere/at-all")
    assert (refused.returncode, refused.stdout) == (1, "")
    (line,) = refused.stderr.splitlines()
    assert line.startswith("error: there is no dataset at /nowhere/at-all")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["generate", "cylinder-flow", "--cases", "0"], "--cases"),
        (["generate", "cylinder-flow", "--sampler", "dice"], "--sampler"),
        (["generate", "cylinder-flow", "--set", "end_time"], "NAME=VALUE"),
        (["generate"], "family"),
        (["run"], "name a family to generate cases of, or give --dataset or --run"),
    ],
)
def test_a_wrong_option_is_a_usage_error(arguments, message):
    refused = courant_here(*arguments)
    assert refused.exit_code == 2
    assert message in refused.stderr.replace("\n", " ")


def test_recipes_are_listed():
    shown = courant("recipes")
    assert "cylinder-flow-demo" in shown.stdout


def test_the_version_is_the_packages():
    assert courant("--version").stdout == f"courant {version('courant-surrogate')}\n"


def test_a_family_is_shown_with_all_that_can_be_asked_of_it():
    shown = courant("families", "cylinder-flow").stdout
    family = get_family("cylinder-flow")
    for named in (*family.design_space.names, *family.settings_space.names, *family.presets):
        assert named in shown
    header = shown.strip().splitlines()[-1].rpartition(" ")[2]
    assert header == "radius,center_x,center_y"
    listed = courant("families").stdout
    assert all(name in listed for name in FAMILIES)


def test_an_unknown_family_or_recipe_is_one_line_with_the_known_ones():
    for arguments in (("families", "none"), ("recipes", "show", "none")):
        done = courant(*arguments)
        assert done.returncode == 1
        (line,) = done.stderr.splitlines()
        assert "'none' is unknown; choose one of" in line


@pytest.mark.parametrize("name", sorted(RECIPES))
def test_a_recipe_is_printed_as_the_experiment_that_it_is(name):
    shown = CliRunner().invoke(app, ["recipes", "show", name])
    assert parse_experiment(json.loads(shown.stdout)) == get_recipe(name)


def test_the_doctor_says_what_is_missing_and_how_to_get_it(tmp_path):
    blind = tmp_path / "nothing"
    blind.mkdir()
    ill = courant("doctor", PATH=str(blind), COURANT_SCRATCH="/proc/none")
    assert ill.returncode == 0, ill.stderr
    lines = {line.split()[0]: line for line in ill.stdout.splitlines() if line.strip()}
    assert "missing" in lines["OpenFOAM"] and "apt-get install openfoam" in lines["OpenFOAM"]
    assert "set COURANT_SCRATCH" in lines["scratch"]
    assert ill.stdout.splitlines()[-1].endswith("cases cannot be solved.")


def test_the_doctor_tries_what_gmsh_loads(tmp_path):
    (tmp_path / "gmsh.py").write_text("raise OSError('libGLU.so.1: cannot open')")
    ill = courant("doctor", PYTHONPATH=str(tmp_path))
    line = next(line for line in ill.stdout.splitlines() if line.split()[:1] == ["gmsh"])
    assert "missing" in line and "libGLU.so.1" in line
    assert ill.stdout.splitlines()[-1].endswith("cases cannot be solved.")


def test_the_doctor_finds_a_machine_that_solves_cases_well(tmp_path):
    well = courant("doctor", COURANT_STORE=str(tmp_path), COURANT_SCRATCH=str(tmp_path))
    assert well.stdout.splitlines()[-1].startswith("Cases can be solved here"), well.stdout
    assert "no dataset yet" in well.stdout


def test_the_doctor_names_a_server_that_does_not_answer():
    ill = courant("doctor", PREFECT_API_URL="http://127.0.0.1:9/api")
    assert "http://127.0.0.1:9/api (PREFECT_API_URL) does not answer" in ill.stdout


def test_the_case_of_the_examples_is_one_of_the_demo():
    makefile = Path(__file__).parents[2].joinpath("Makefile").read_text()
    given = dict(
        each.split("=")
        for each in re.findall(r"--set (\S+)", makefile.partition("DEMO_SETTINGS :=")[2])
    )
    number = re.search(r"run cylinder-flow --cases (\d+) \$\(DEMO", makefile)
    found = re.search(r"predict RUN (\w{12}) ", courant_here("predict", "--help").output)
    assert number is not None
    assert found is not None
    family = get_family("cylinder-flow")
    settings = family.settings("trial", {name: float(value) for name, value in given.items()})
    designs = family.design_space.sample(int(number[1]), "sobol", 42)
    cases = {family.point(each, settings).id for each in designs}
    assert found[1] in cases


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("dataset", "ls", "--store", "s3://"), "the URL s3:// names no bucket"),
        (("dataset", "show", "a:x:b"), "there is no dataset at a:x:b:"),
        (("dataset", "show", "a[/b]"), "there is no dataset at a[/b]:"),
        (("runs", "ls", "~nosuch/x"), "~nosuch/x is no path on this machine"),
        (("status", "--once", "--store", "~nosuch/x"), "~nosuch/x is no path on this machine"),
        (("sweep", "x", "--space", "~nosuch/x.yaml"), "is no path on this machine"),
        (
            ("dataset", "generate-benchmark", "elasticity", "--train", "1", "--store", "s3:/x"),
            "the URL s3:/x names no bucket",
        ),
        (
            ("predict", "RUN", "case", "--parameters", "radius=2", "--out", "x.npz"),
            "--parameters belongs to a mesh file",
        ),
        (
            ("predict", "RUN", "case", "--boundary", "x.vtu", "--out", "x.npz"),
            "--boundary belongs to a mesh file",
        ),
        (("report", "RUN", "--out", "/etc/passwd"), "/etc/passwd is a file"),
        (("run", "--run", "RUN", "--recipe", "cylinder-flow-demo"), "only its report is left"),
    ],
)
def test_a_place_or_option_that_cannot_be_meant_is_one_line(arguments, says, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    told = courant_here(*arguments)
    assert told.exit_code == 1
    assert says in told.stderr and told.stderr.count("\n") == 1, told.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "arguments",
    [
        ("generate", "cylinder-flow", "--seed", "99999999999999999999"),
        ("generate", "cylinder-flow", "--cases", "100000000000"),
        ("sweep", "x", "--seed", "99999999999999999999"),
        ("dataset", "gc", "x", "--older-than", "inf"),
        ("status", "--every", "inf"),
        ("metrics", "--every", "nan"),
        ("predict", "RUN", "case", "--steps", "100000000", "--out", "x.npz"),
    ],
)
def test_numbers_that_no_machine_can_carry_out_are_refused(arguments):
    assert courant_here(*arguments).exit_code == 2


def test_a_line_shows_brackets_and_colons_as_they_are(capsys):
    from flows import terminal

    terminal.print_line("/tmp/a[/b]/[v2]/x:x:y")
    assert capsys.readouterr().out == "/tmp/a[/b]/[v2]/x:x:y\n"


def test_an_output_without_room_is_one_line(tmp_path):
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [str(COURANT), "recipes", "show", "cylinder-flow-demo"],
            stdout=full, stderr=subprocess.PIPE, text=True, timeout=600,
        )  # fmt: skip
    assert done.returncode == 1 and "Traceback" not in done.stderr
    assert "error: No space left on device" in done.stderr


@pytest.mark.parametrize("address", ["garbage", "http://127.0.0.1:x/api"])
def test_the_doctor_outlives_an_address_that_is_none(address):
    ill = courant("doctor", PREFECT_API_URL=address, RAY_ADDRESS=address)
    assert ill.returncode == 0
    assert f"{address} (PREFECT_API_URL) does not answer" in ill.stdout
    assert f"{address} (RAY_ADDRESS) does not answer" in ill.stdout
