"""What a report costs: all panels of a cylinder run, and the decomposition of a prediction at
300,000 points, each in a process of its own.

Flows are known in closed form and models have had one short epoch: neither changes what drawing
costs. The evaluation, which the report only reads, is made before and not counted.

    python -m bench.bench_report RUN

measures the report of a trained run instead.
"""

import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch

import simgen
from bench.report import publish, show
from bench.synthetic_cases import publish_cases
from courant.evaluation.evaluate import evaluate
from courant.evaluation.record import read_evaluation
from courant.experiment import Experiment
from courant.recipes import get_recipe
from courant.report.anchors import decomposition_panel
from courant.report.context import open_context
from courant.report.page import Lead, write_page
from courant.report.report import write_report
from courant.runs.directory import RunDirectory
from courant.training.train import fit
from simgen.case import CaseResult
from simgen.cases import get_family
from simgen.design_space import DesignPoint
from simgen.store.schema import Schema
from tests.world import SCHEMA, SPACE, design_point, duct, tiny_steady, travelling_wave

THREADS = 1
"""Threads that wait for each other would count as work on a busy machine"""

#: Names, and aims for seconds of processor time and GB.
REPORT = ("report of a cylinder run, all panels", 90.0, "")
DECOMPOSITION = ("decomposition at 300,000 points, with figures", 60.0, 4.0)


def main(out: Path, short: bool) -> None:
    """Print the table, write report.json."""
    publish(out, "report", [_measured("report", short), _measured("decomposition", short)])


def _measured(what: str, short: bool) -> dict[str, Any]:
    """Prepare a run in one process, and measure in another, whose peak is its own."""
    with tempfile.TemporaryDirectory(prefix="bench-report-") as folder:
        for step in (f"prepare_{what}", f"measure_{what}"):
            call = f"from bench.bench_report import {step} as step; step({folder!r}, {short})"
            subprocess.run([sys.executable, "-c", call], check=True)
        found: dict[str, Any] = json.loads((Path(folder) / "record.json").read_text())
        return found


def prepare_report(folder: str, short: bool) -> None:
    """Train the demo's model for one epoch on waves as long and as fine as the demo's cases."""
    url = f"{folder}/store/cylinder-flow"
    points, frames = (200, 260) if short else (2_400, 300)
    clouds = (
        (
            CaseResult(design_point(number / 2, frames), "accepted"),
            travelling_wave(points, 0.5 + 0.02 * number, seed=number, num_frames=frames),
        )
        for number in range(24)
    )
    publish_cases(url, Schema.of(get_family("cylinder-flow")), clouds, "waves")
    recipe = get_recipe("cylinder-flow-demo")
    _train(folder, url, recipe.derive(training={"epochs": 1, "samples_per_epoch": 64}))


def measure_report(folder: str, short: bool) -> None:
    """Write the whole report."""
    run = f"{folder}/runs/run"
    torch.set_num_threads(THREADS)
    began = time.perf_counter()
    page = write_report(run, f"{folder}/report")
    print(f"page: {Path(page).stat().st_size / 1e6:.1f} MB")
    _record(folder, REPORT, began)


def prepare_decomposition(folder: str, short: bool) -> None:
    """Train the pipe's model for a moment on small ducts; the case of the test split is large."""
    large, url = 20_000 if short else 300_000, f"{folder}/store/branched-pipe"
    cases = []
    for number, parameters in enumerate(SPACE.sample(6, "sobol", 1)):
        point = DesignPoint("branched-pipe", 1, parameters, {"mesh_size": 0.1})
        split = ("test", "validation")[number] if number < 2 else "train"
        cloud = duct(large if split == "test" else 100, parameters, seed=number)
        cases.append((CaseResult(point, "accepted", split=split), cloud))
    publish_cases(url, SCHEMA, cases, "ducts")
    model = get_recipe("branched-pipe").model
    sizes = {name: getattr(model, name) for name in ("width", "num_anchors", "num_levels")}
    both = {"num_outputs": 4, "num_features": 4}
    experiment = tiny_steady(epochs=1, samples_per_epoch=8).derive(
        model={**sizes, **both}, data={"fields": ("velocity", "kinematic_pressure")}
    )
    _train(folder, url, experiment)


def measure_decomposition(folder: str, short: bool) -> None:
    """Predict the large case, take it apart, and draw what the strongest anchors contribute."""
    run = RunDirectory(f"{folder}/runs/run")
    evaluation = read_evaluation(run)
    assert evaluation is not None, "prepared before"
    context = open_context(run, evaluation)
    torch.set_num_threads(THREADS)
    began, before = time.perf_counter(), time.process_time()
    panel = decomposition_panel(context)
    assert panel is not None
    write_page(RunDirectory(f"{folder}/report"), "Decomposition", (), Lead("", ""), {"": [panel]})
    _record(folder, DECOMPOSITION, began, before)


def _train(folder: str, url: str, experiment: Experiment) -> None:
    torch.set_num_threads(THREADS)
    run = RunDirectory(f"{folder}/runs/run")
    fit(experiment, simgen.open_dataset(url), run)
    evaluate(run.url)


def _record(folder: str, work: tuple[str, float, Any], began: float, before: float = 0.0) -> None:
    """Write down what this process has used; with a report, that includes its start."""
    name, aim_s, aim_gb = work
    record = {
        "": name,
        "processor s": time.process_time() - before,
        "aim": aim_s,
        "wall s": time.perf_counter() - began,
        "peak GB": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20,
        "aim for GB": aim_gb,
    }
    (Path(folder) / "record.json").write_text(json.dumps(record))


if __name__ == "__main__":
    run = sys.argv[1]
    with tempfile.TemporaryDirectory(prefix="bench-report-") as folder:
        (Path(folder) / "runs").mkdir()
        (Path(folder) / "runs/run").symlink_to(Path(run).resolve())
        measure_report(folder, short=False)
        show([json.loads((Path(folder) / "record.json").read_text())])
