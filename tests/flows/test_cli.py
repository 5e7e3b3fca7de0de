"""The command line as a person meets it: help at once, with examples; bad requests refused before
anything starts.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from courant.experiment import parse_experiment
from courant.recipes import RECIPES, get_recipe
from flows.cli.app import app
from flows.request_models import allowed_hosts
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
        (["recipes", "show", "none"], "'none' is unknown; choose one of"),
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


@pytest.mark.parametrize("name", sorted(RECIPES))
def test_a_recipe_is_printed_as_the_experiment_that_it_is(name):
    shown = CliRunner().invoke(app, ["recipes", "show", name])
    assert parse_experiment(json.loads(shown.stdout)) == get_recipe(name)


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


def test_an_output_without_room_is_one_line(tmp_path):
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [str(COURANT), "recipes", "show", "cylinder-flow-demo"],
            stdout=full, stderr=subprocess.PIPE, text=True, timeout=600,
        )  # fmt: skip
    assert done.returncode == 1 and "Traceback" not in done.stderr
    assert "error: No space left on device" in done.stderr


def commands(group: Any, *names: str) -> Iterator[tuple[tuple[str, ...], Any]]:
    """All commands, also of groups, with the words that call them."""
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from commands(command, *names, name)
        else:
            yield (*names, name), command


def test_every_command_explains_itself_with_an_example():
    found = dict(commands(typer.main.get_command(app)))
    assert len(found) > 30
    for words, command in found.items():
        example = f"Example: courant {words[0]} "
        assert command.help and example in f"{command.epilog} ", words


@pytest.mark.parametrize(
    ("command", "text"),
    [
        (("train",), "for imported data and a family without a recipe one that is fitted"),
        (("generate",), "default: courant-data/store"),
        (("train",), "default: courant-data/runs"),
        (("runs", "ls"), "default: courant-data/runs"),
        (("evaluate",), "courant-data/reports"),
    ],
)
def test_the_help_names_what_is_taken_by_default(command: tuple[str, ...], text: str) -> None:
    assert text in " ".join(courant_here(*command, "--help").output.replace("│", " ").split())


@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        ("courant gen", "generate"),
        ("courant dataset ver", "verify"),
        ("courant train --rec", "--recipe"),
    ],
)
def test_the_shell_completes_commands_and_options(typed: str, offered: str) -> None:
    words = {"COMP_WORDS": typed, "COMP_CWORD": str(len(typed.split()) - 1)}
    asked = {"_COURANT_COMPLETE": "complete_bash", **words}
    done = CliRunner().invoke(app, [], prog_name="courant", env=asked)
    assert offered in done.output.split()


def test_hosts_are_names_wildcards_and_addresses():
    names = ["courant.example.com", "*.example.com", "10.0.0.5", "[fe80::1]"]
    assert allowed_hosts(names) == names
    for wrong in ("http://a.example.com", "a.example.com:80", "*", "a*b", ""):
        with pytest.raises(typer.BadParameter, match="is not the name of a host"):
            allowed_hosts([wrong])
