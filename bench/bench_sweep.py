"""What early stopping saves and what it costs: a sweep of 12 tiny trials with ASHA beside the same
trials to their end.

Each trial fits a narrow model to travelling waves; learning rates over three decades and three
numbers of anchors, as a first sweep would have them. The picked configuration is judged by what it
reaches when trained to its end.
"""

from __future__ import annotations

import json
import tempfile
import time
from pathlib import Path

import ray
from rich.console import Console
from rich.table import Table

import simgen
from courant.sweeps.ray_trials import run_sweep
from courant.sweeps.search_space import parse_space
from courant.sweeps.sweep import TrialResult, best_trial, plan_sweep
from tests.training.waves import publish_waves, tiny_experiment

TRIALS = 12
BAR_EPOCHS, BAR_NMAE = 0.45, 1.05
SPACE = """
design: grid
parameters:
  training.learning_rate: [1.0e-5, 1.0e-4, 1.0e-3, 1.0e-2]
  model.num_anchors: [4, 8, 16]
"""


def main(out: Path, short: bool) -> None:
    """Print the table, write sweep.json."""
    epochs = 9 if short else 27
    with tempfile.TemporaryDirectory(prefix="bench-sweep-") as folder:
        dataset = simgen.open_dataset(publish_waves(f"{folder}/store/cylinder-flow"))
        baseline, space = tiny_experiment(epochs=epochs), parse_space("bench", SPACE)
        ray.init(address="local", num_cpus=2, include_dashboard=False, log_to_driver=False)
        measured: dict[str, tuple[list[TrialResult], float]] = {}
        for name, early in (("ASHA", True), ("all to the end", False)):
            sweep = plan_sweep(baseline, dataset, space, TRIALS, f"{folder}/{name}")
            began = time.perf_counter()
            results = run_sweep(sweep, early_stopping=early)
            measured[name] = (results, time.perf_counter() - began)
        ray.shutdown()
    whole = measured["all to the end"][0]
    best = best_trial(whole)
    picked = whole[best_trial(measured["ASHA"][0]).number - 1]
    spent = {
        name: sum(result.epochs for result in results) for name, (results, _) in measured.items()
    }
    assert best.nmae is not None and picked.nmae is not None
    record = {
        "trials": TRIALS,
        "epochs": epochs,
        "spent_epochs": spent,
        "share": spent["ASHA"] / spent["all to the end"],
        "share_bar": BAR_EPOCHS,
        "picked": {"setting": picked.setting, "nmae": picked.nmae},
        "best": {"setting": best.setting, "nmae": best.nmae},
        "nmae_ratio": picked.nmae / best.nmae,
        "nmae_ratio_bar": BAR_NMAE,
        "seconds": {name: seconds for name, (_, seconds) in measured.items()},
    }
    (out / "sweep.json").write_text(json.dumps(record, indent=2))
    table = Table(
        "",
        "epochs",
        "share",
        "picks trial",
        "its NMAE at the end",
        "over the best",
        "seconds",
        title=f"{TRIALS} trials of up to {epochs} epochs",
    )
    for name, chosen, bars in (("ASHA", picked, True), ("all to the end", best, False)):
        table.add_row(
            name,
            str(spent[name]),
            f"{spent[name] / spent['all to the end']:.0%}"
            + (f" (bar {BAR_EPOCHS:.0%})" if bars else ""),
            str(chosen.number),
            f"{chosen.nmae:.3f}",
            f"{(chosen.nmae or 0) / best.nmae:.3f}" + (f" (bar {BAR_NMAE:.2f})" if bars else ""),
            f"{measured[name][1]:.0f}",
        )
    Console().print(table)
