"""What early stopping saves and what it costs: a sweep of 12 tiny trials with ASHA beside the same
trials to their end.

Each trial fits a narrow model to travelling waves; learning rates over three decades and three
numbers of anchors, as a first sweep would have them. The picked configuration is judged by what it
reaches when trained to its end.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

import ray

import simgen
from bench.report import publish
from courant.sweeps.ray_trials import run_sweep
from courant.sweeps.search_space import parse_space
from courant.sweeps.sweep import TrialResult, best_trial, plan_sweep
from tests.world import publish_waves, tiny_experiment

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
    best, all_epochs = best_trial(whole), sum(result.epochs for result in whole)
    assert best.nmae is not None
    rows = []
    for name, (results, seconds) in measured.items():
        picked = whole[best_trial(results).number - 1]
        spent = sum(result.epochs for result in results)
        assert picked.nmae is not None
        rows.append(
            {
                "": name,
                "epochs": spent,
                "share": spent / all_epochs,
                "picks trial": picked.number,
                "its NMAE at the end": picked.nmae,
                "over the best": picked.nmae / best.nmae,
                "seconds": seconds,
            }
        )
    title = f"{TRIALS} trials of up to {epochs} epochs"
    publish(out, "sweep", rows, title, bar_for_the_share=BAR_EPOCHS, bar_for_the_nmae=BAR_NMAE)
