"""The command line as a person meets it: help at once, with examples; bad requests refused before anything starts."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

COURANT = Path(sys.executable).parent / "courant"


def courant(*arguments, **environment):
    return subprocess.run(
        [str(COURANT), *arguments],
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, "COLUMNS": "200", **environment},
    )


def test_help_needs_none_of_the_heavy_libraries():
    code = "import sys, flows.cli; print(sorted({'torch', 'ray', 'prefect', 'zarr', 'gmsh'} & set(sys.modules)))"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert found.stdout.strip() == "[]", found.stderr


@pytest.mark.parametrize(
    "command",
    ["run", "generate", "train", "sweep", "evaluate", "report", "predict", "serve"]
    + [f"runs {name}" for name in ("ls", "show", "compare")]
    + [
        f"dataset {name}" for name in ("ls", "show", "versions", "diff", "verify", "export", "export-vtu", "card", "gc")
    ],
)
def test_every_command_explains_itself_with_an_example(command):
    shown = courant(*command.split(), "--help")
    assert shown.returncode == 0
    assert "Example: courant" in shown.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["generate", "teapot"], "family 'teapot' is unknown; choose one of cylinder-flow"),
        (
            ["generate", "cylinder-flow", "--preset", "quick"],
            "preset 'quick' is unknown to cylinder-flow; choose one of paper, trial",
        ),
        (["generate", "cylinder-flow", "--set", "end_time=-1"], "end_time = -1 s is outside its range"),
        (["generate", "cylinder-flow", "--set", "colour=1"], "unknown colour; expected end_time"),
        (["generate", "cylinder-flow", "--designs", "nowhere.csv"], "nowhere.csv does not exist"),
        (["run", "teapot"], "family 'teapot' is unknown"),
        (["run", "--dataset", "/nowhere/at-all"], "there is no dataset at /nowhere/at-all"),
        (["dataset", "show", "/nowhere/at-all"], "there is no dataset at /nowhere/at-all"),
        (["dataset", "ls", "--store", "/nowhere"], "no dataset in /nowhere"),
        (["dataset", "versions", "/nowhere/at-all"], "there is no dataset at /nowhere/at-all"),
        (["dataset", "diff", "/nowhere/at-all", "v1", "v2"], "there is no dataset at /nowhere/at-all"),
        (["dataset", "verify", "/nowhere/at-all"], "there is no dataset at /nowhere/at-all"),
        (["dataset", "export", "/nowhere/at-all", "x"], "there is no dataset at /nowhere/at-all"),
        (["dataset", "card", "/nowhere/at-all"], "there is no dataset at /nowhere/at-all"),
        (["dataset", "gc", "/nowhere/at-all"], "there is no dataset at /nowhere/at-all"),
        (["sweep", "/nowhere/at-all"], "there is no dataset at /nowhere/at-all"),
        (["train", "/nowhere/at-all"], "there is no dataset at /nowhere/at-all"),
        (["predict", "/nowhere/run", "abc", "--out", "x.npz"], "/nowhere/run has no experiment.json"),
        (["report", "/nowhere/run"], "/nowhere/run"),
        (["predict", "/nowhere/run", "case.vtu", "--out", "x.vtu"], "/nowhere/run has no experiment.json"),
        (["predict", "RUN", "case.vtu", "--start", "1", "--out", "x.vtu"], "--start belongs to a stored case"),
        (["serve", "/nowhere/run"], "/nowhere/run has no model.safetensors"),
    ],
)
def test_a_bad_request_is_one_line_on_stderr_and_exit_code_one(arguments, message):
    began = time.monotonic()
    refused = courant(*arguments)
    assert refused.returncode == 1, refused.stderr
    assert refused.stderr.startswith("error: ")
    assert message in refused.stderr
    assert len(refused.stderr.strip().splitlines()) == 1
    assert "Traceback" not in refused.stderr + refused.stdout
    assert time.monotonic() - began < 60


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
    refused = courant(*arguments)
    assert refused.returncode == 2
    assert message in refused.stderr.replace("\n", " ")


def test_recipes_are_listed():
    shown = courant("recipes")
    assert "cylinder-flow-demo" in shown.stdout
