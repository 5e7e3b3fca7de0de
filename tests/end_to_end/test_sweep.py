"""A sweep as a stage of the main job: cases, dataset, trials, the best of them, its report; again
without work.
"""

import json
from pathlib import Path

import pytest

import courant
from tests.end_to_end.conftest import SHORT, run, start_courant
from tests.end_to_end.processes import listeners_until_end

pytestmark = [pytest.mark.end_to_end, pytest.mark.openfoam]

SPACE = """
about: two widths of the latent
design: grid
parameters:
  model.num_anchors: [4, 8]
"""


def test_a_sweep_between_dataset_and_report(environment, tiny_experiment, tmp_path):
    space = tmp_path / "space.yaml"
    space.write_text(SPACE)
    command = ["run", "cylinder-flow", "--cases", "3", *SHORT, "--out", str(tmp_path / "out")]
    command += ["--experiment", str(tiny_experiment), "--sweep", str(space), "--trials", "2"]
    first = start_courant(environment, *command)
    found = listeners_until_end(first, 400)
    told = first.stdout.read().decode()
    assert first.returncode == 0, told
    assert found
    assert not [one for one in found if not one.on_loopback]
    assert (tmp_path / "out" / "report" / "index.html").is_file()
    (table,) = (tmp_path / "out" / "runs").rglob("trials.json")
    folder = table.parent
    assert {"index.html", "hyperparameters.png", "trials.csv", "best.json"} <= {
        path.name for path in folder.iterdir()
    }
    assert json.loads((folder / "best.json").read_text())["model"]["num_anchors"] in (4, 8)
    (line,) = [line for line in told.splitlines() if line.startswith("run ")]
    best = Path(line.split(maxsplit=1)[1])
    assert best.parent == folder / "trials"
    assert courant.load(best).experiment.model.num_anchors in (4, 8)

    weights = {path: path.stat().st_mtime_ns for path in (folder / "trials").rglob("*.safetensors")}
    again = run(environment, "courant", *command)
    assert again.returncode == 0, again.stderr
    assert {path: path.stat().st_mtime_ns for path in weights} == weights
