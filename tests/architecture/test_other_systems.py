"""Datasets are read, models trained and asked without what only Linux and POSIX have.

The project's code runs here as on a system without it: other packages are imported before, since
they look at the system's name to choose what they use.
"""

import os
import subprocess
import sys
from pathlib import Path

from tests.world import World, tiny_experiment

LACKING_ON_WINDOWS = ("fcntl", "resource", "pwd", "grp", "termios")
CODE = """
import os, signal, sys, torch, icechunk, zarr, xarray, s3fs, pandas, scipy.spatial, safetensors
import tensorboardX, matplotlib.pyplot, igl, yaml, rich, typer, pydantic, jinja2, getpass, tempfile
import socket, shutil, subprocess, tensorboardX.event_file_writer
for name in {modules}:
    sys.modules[name] = None
for name in (
    "getuid", "geteuid", "sched_getaffinity", "sched_setaffinity", "sysconf", "getpriority",
    "setpriority", "killpg", "getpgid", "setsid", "pread", "O_NOFOLLOW", "O_NONBLOCK",
):
    delattr(os, name)
for name in ("SIGKILL", "SIGHUP", "SIGUSR1", "pthread_kill"):
    delattr(signal, name)
import courant, simgen
from courant.experiment import parse_experiment
from courant.runs.directory import RunDirectory
from courant.training.train import fit
url, experiment, folder = sys.argv[1:]
dataset = simgen.open_dataset(url)
case = dataset[dataset.cases("test")[0]]
assert case["velocity"][:].shape[-1] == 2
fit(parse_experiment(experiment), dataset, RunDirectory(folder))
model = courant.load(folder)
velocity = case["velocity"][0]
predicted = model.predict(case.points, initial=velocity, parameters=dict(case.parameters))
print("predicted", predicted.shape)
from typer.testing import CliRunner
from flows.cli.app import app
for command in (["dataset", "show", url], ["runs", "show", folder], ["families"]):
    done = CliRunner().invoke(app, command)
    assert done.exit_code == 0, (command, done.output, done.exception)
"""


def test_reading_training_and_predicting_ask_nothing_of_posix(world: World, tmp_path: Path) -> None:
    experiment = tiny_experiment(epochs=1, samples_per_epoch=8).model_dump_json()
    code = CODE.format(modules=LACKING_ON_WINDOWS)
    done = subprocess.run(
        [sys.executable, "-c", code, world.waves(), experiment, str(tmp_path / "run")],
        env={**os.environ, "USERNAME": "Ada"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert "predicted (2, " in done.stdout
