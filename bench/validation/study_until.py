"""Does the band of `--until` hold where it ends? Replayed on designs that are solved already.

    courant generate branched-pipe --cases 256 --store OUT/until
    python -m bench.validation until --out OUT

Each dataset in OUT/until is a pool; a quarter of it, drawn by a seed, stays aside as fresh designs.
A search starts with the first of ROUNDS designs of the pool and adds one after the other.
It ends with the round at which the band of 90 % of a quantity is as narrow as that of REACHED
designs is in the median over the seeds. The table has the designs that were needed, and how many of
the fresh designs were inside of the band then.
"""

from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import qmc

import simgen
from bench.report import publish
from courant.prediction.bands import LEVEL, conformal_quantile
from flows.stages import NUM_FOLDS
from simgen.design_space import scaled
from simgen.regression import gaussian_process, left_out

NEEDS = "datasets"
SEEDS, REACHED = 10, 47
ROUNDS = (16, 20, 25, 31, 38, 47, 58, 72, 90, 112)

Steps = list[tuple[int, float, float]]
"""Designs, the band's half-width over the quantity's mean, and the share of fresh designs inside"""


def main(out: Path, short: bool) -> None:
    rows: list[dict[str, Any]] = []
    for pool in sorted((out / "until").iterdir()):
        dataset = simgen.open_dataset(pool)
        cases = dataset.cases()[: 40 if short else None]
        parameters = dataset.schema.parameters
        designs = np.array([scaled(parameters, dataset[case].parameters) for case in cases])
        table = dataset.design.loc[cases]
        for quantity in dataset.schema.quantities:
            values = table[quantity.name].to_numpy(float)
            known = np.isfinite(values)
            ended = _replayed(designs[known], values[known], 1 if short else SEEDS)
            rows.append({"quantity": quantity.name, "pool": int(known.sum()), **ended})
    publish(out, "until", rows)


def _replayed(designs: np.ndarray, values: np.ndarray, seeds: int) -> dict[str, float]:
    runs = [_replay(designs, values, seed) for seed in range(seeds)]
    at = min(ROUNDS.index(REACHED), min(map(len, runs)) - 1)
    target = float(np.median([run[at][1] for run in runs]))
    # The last round where none has so narrow a band.
    ends = [next((step for step in run if step[1] <= target), run[-1]) for run in runs]
    return {
        "band, % of mean": 100 * target,
        "designs (median)": float(np.median([number for number, _, _ in ends])),
        "inside, %": 100 * float(np.mean([inside for _, _, inside in ends])),
    }


def _replay(designs: np.ndarray, values: np.ndarray, seed: int) -> Steps:
    """Return the rounds of one seed."""
    order = np.random.default_rng(seed).permutation(len(values))
    fresh, left = order[: len(order) // 4], order[len(order) // 4 :].tolist()
    sequence = qmc.Sobol(designs.shape[1], rng=np.random.default_rng(seed))
    solved: list[int] = []
    steps: Steps = []
    while left and len(solved) < ROUNDS[-1]:
        # The pool's nearest to the next point of a Sobol sequence.
        wanted = 2 * sequence.random(1)[0] - 1
        solved.append(left.pop(int(((designs[left] - wanted) ** 2).sum(1).argmin())))
        if len(solved) not in ROUNDS:
            continue
        inputs, outputs = designs[solved], values[solved][:, None]
        off = np.abs(gaussian_process(inputs, outputs)(designs[fresh])[:, 0] - values[fresh])
        errors = np.abs(left_out(inputs, outputs, NUM_FOLDS)[0] - outputs)[:, 0]
        half = conformal_quantile(errors, LEVEL)
        band = half / float(np.abs(outputs).mean())
        steps.append((len(solved), band, float((off <= half).mean())))
    return steps
