"""Which designs to solve next? Replayed on designs that are solved already, for `--until`.

    courant generate branched-pipe --cases 256 --store OUT/until
    courant generate branched-pipe --cases 128 --set mesh_size=10 --store OUT/coarse
    python -m bench.validation until --out OUT

Each dataset in OUT/until is a pool; a quarter of it, drawn by a seed, stays aside as fresh designs.
A way starts with the first of ROUNDS designs of the pool and adds one after the other.
It ends with the round at which the band of 90 % of a quantity is as narrow as Sobol's, in the
median over the seeds, with REACHED designs. The table has the designs that were needed, over
Sobol's with the same seed, and how many of the fresh designs were inside of the band then.

`coarse.json`: are solutions on a coarser mesh worth their time? Fewer fine ones, and `times` as
many coarse ones in the rest of the time, give a process of the coarse value and one of what is left
(Kennedy & O'Hagan 2000). Fresh designs are the fine ones without a coarse solution.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import qmc

import simgen
from bench.report import publish
from courant.prediction.bands import LEVEL, conformal_quantile
from flows.stages import NUM_FOLDS
from simgen.design_space import scaled
from simgen.regression import (
    GaussianProcess,
    Predictor,
    covariance,
    gaussian_process,
    left_out,
    with_noise,
)
from simgen.store.read import Dataset

NEEDS = "datasets"
SEEDS, REACHED = 10, 47
ROUNDS = (16, 20, 25, 31, 38, 47, 58, 72, 90, 112)

#: Chooses one of the designs that are left (k, P), given the process, those solved (n, P) and their
#: values (n,), designs spread over the space (m, P), and the next point (P,) of a Sobol sequence.
Way = Callable[[np.ndarray, GaussianProcess, np.ndarray, np.ndarray, np.ndarray], int]


def main(out: Path, short: bool) -> None:
    rows: list[dict[str, Any]] = []
    for coarse in sorted((out / "coarse").glob("*")):
        fine = simgen.open_dataset(out / "until" / coarse.name)
        publish(out, "coarse", _fidelities(fine, simgen.open_dataset(coarse), short))
    for pool in sorted((out / "until").iterdir()):
        dataset = simgen.open_dataset(pool)
        cases = dataset.cases()[: 40 if short else None]
        parameters = dataset.schema.parameters
        designs = np.array([scaled(parameters, dataset[case].parameters) for case in cases])
        table = dataset.design.loc[cases]
        for quantity in dataset.schema.quantities:
            values = table[quantity.name].to_numpy(float)
            known = np.isfinite(values)
            rows += _compare(designs[known], values[known], 1 if short else SEEDS, quantity.name)
    publish(out, "until", rows)


def _fidelities(fine: Dataset, coarse: Dataset, short: bool) -> list[dict[str, Any]]:
    """Return the bands of fine solutions alone, and of fewer with coarse ones, at equal time."""
    tables, costs = [], []
    for each in (fine, coarse):
        accepted = [row for row in each.records.values() if row["status"] == "accepted"]
        tables.append({tuple(row["parameters"].values()): row["quantities"] for row in accepted})
        costs.append(sum(row["core_s"] for row in each.records.values()) / len(accepted))
    names = [each.name for each in fine.schema.parameters]
    share, rows = costs[1] / costs[0], []

    def column(keys: list[Any], table: int, name: str) -> np.ndarray:
        return np.array([tables[table][key][name] for key in keys])[:, None]

    def places(keys: list[Any]) -> np.ndarray:
        designs = [dict(zip(names, key, strict=True)) for key in keys]
        return np.array([scaled(fine.schema.parameters, design) for design in designs])

    both = [key for key in tables[0] if key in tables[1]]
    fresh = [key for key in tables[0] if key not in tables[1]]
    inputs, others = places(both), places(fresh)
    for name in (each.name for each in fine.schema.quantities):
        high, low, truth = column(both, 0, name), column(both, 1, name), column(fresh, 0, name)
        for designs, times in ((47, 0), (67, 0), (47, 1), (47, 2)):
            number, found = int(designs / (1 + times * share)), []
            for seed in range(1 if short else SEEDS):
                order = np.random.default_rng(seed).permutation(len(both))
                first, more = order[:number], order[: times * number]
                errors = []
                for fold in (first[start::NUM_FOLDS] for start in range(NUM_FOLDS)):
                    used, low_used = np.setdiff1d(first, fold), np.setdiff1d(more, fold)
                    predict = _corrected(inputs, high, low, used, low_used)
                    errors.append(predict(inputs[fold]) - high[fold])
                half = conformal_quantile(np.abs(np.concatenate(errors))[:, 0], LEVEL)
                off = np.abs(_corrected(inputs, high, low, first, more)(others) - truth)
                found.append((half / float(np.abs(high).mean()), float((off <= half).mean())))
            band, inside = 100 * np.mean(found, axis=0)
            rows.append(
                {
                    "quantity": name,
                    "core-s": designs * costs[0],
                    "fine": number,
                    "coarse": min(times * number, len(both)),
                    "band, % of mean": float(band),
                    "from": 100 * min(found)[0],
                    "to": 100 * max(found)[0],
                    "inside, %": float(inside),
                }
            )
    return rows


def _corrected(
    inputs: np.ndarray, high: np.ndarray, low: np.ndarray, used: np.ndarray, low_used: np.ndarray
) -> Predictor:
    """Fit fine values at the designs `used`, by coarse ones at `low_used` where there are some."""
    if not len(low_used):
        return gaussian_process(inputs[used], high[used])
    first = gaussian_process(inputs[low_used], low[low_used])
    slope = np.polyfit(low[used, 0], high[used, 0], 1)[0]
    rest = gaussian_process(inputs[used], high[used] - slope * low[used])
    return lambda at: slope * first(at) + rest(at)


def _posterior(left: np.ndarray, right: np.ndarray, fitted: GaussianProcess) -> np.ndarray:
    """Covariance (k, m) of two sets of designs given the solved ones, over the variance."""
    solved, logs = fitted.inputs, fitted.logs
    to_left, to_right = covariance(left, solved, logs), covariance(right, solved, logs)
    known = to_left @ np.linalg.solve(with_noise(solved, logs), to_right.T)
    return covariance(left, right, logs) - known


def _sobol(left: Any, fitted: Any, solved: Any, spread: Any, wanted: np.ndarray) -> int:
    return int(((left - wanted) ** 2).sum(1).argmin())


def _gap(left: np.ndarray, fitted: Any, solved: np.ndarray, spread: Any, wanted: Any) -> int:
    return int(((left[:, None] - solved) ** 2).sum(-1).min(1).argmax())


def _variance(left: np.ndarray, fitted: GaussianProcess, *others: Any) -> int:
    return int(np.diag(_posterior(left, left, fitted)).argmax())


def _members(left: np.ndarray, fitted: GaussianProcess, solved: np.ndarray, *others: Any) -> int:
    """Disagreement of eight processes of the same lengths, each fitted to a draw of the designs."""
    draws = np.random.default_rng(len(solved))
    standard = with_noise(solved, fitted.logs) @ fitted.weights
    values = fitted.mean + fitted.scale * standard
    values = np.exp(values) if fitted.by_logarithm else values
    found = []
    for _ in range(8):
        some = np.unique(draws.integers(len(solved), size=len(solved)))
        found.append(GaussianProcess.of(solved[some], values[some], fitted.logs)(left)[:, 0])
    return int(np.std(found, axis=0).argmax())


def _reduction(
    left: np.ndarray, fitted: GaussianProcess, solved: Any, spread: np.ndarray, *others: Any
) -> int:
    """Expected fall of the variance, averaged over the space (Cohn 1996)."""
    own = np.diag(_posterior(left, left, fitted)) + np.exp(fitted.logs[-1])
    return int(((_posterior(left, spread, fitted) ** 2).sum(1) / own).argmax())


WAYS: dict[str, Way] = {
    "Sobol": _sobol,
    "largest gap": _gap,
    "variance": _variance,
    "members": _members,
    "reduction": _reduction,
}


def _compare(
    designs: np.ndarray, values: np.ndarray, seeds: int, name: str
) -> list[dict[str, Any]]:
    runs = {
        way: [_replay(choose, designs, values, seed) for seed in range(seeds)]
        for way, choose in WAYS.items()
    }
    at = min(ROUNDS.index(REACHED), min(len(run) for run in runs["Sobol"]) - 1)
    target = float(np.median([run[at][1] for run in runs["Sobol"]]))
    stops = {way: [_stop(run, target) for run in of] for way, of in runs.items()}
    rows = []
    for way, of in stops.items():
        shares = [own[0] / sobol[0] for own, sobol in zip(of, stops["Sobol"], strict=True)]
        rows.append(
            {
                "quantity": name,
                "pool": len(designs),
                "band, % of mean": 100 * target,
                "way": way,
                "designs (median)": float(np.median([size for size, _ in of])),
                "of Sobol's": float(np.median(shares)),
                "from": min(shares),
                "to": max(shares),
                "inside, %": 100 * float(np.mean([inside for _, inside in of])),
            }
        )
    return rows


Steps = list[tuple[int, float, float]]
"""Designs, the band's half-width over the quantity's mean, and the share of fresh designs inside"""


def _stop(run: Steps, target: float) -> tuple[int, float]:
    """Designs and share at the first round whose band is narrow enough; the last where none is."""
    number, _, inside = next((step for step in run if step[1] <= target), run[-1])
    return number, inside


def _replay(choose: Way, designs: np.ndarray, values: np.ndarray, seed: int) -> Steps:
    """Return the rounds of one way and seed."""
    order = np.random.default_rng(seed).permutation(len(values))
    fresh, left = order[: len(order) // 4], order[len(order) // 4 :].tolist()
    sequence = qmc.Sobol(designs.shape[1], rng=np.random.default_rng(seed))
    spread = 2 * qmc.Sobol(designs.shape[1], rng=np.random.default_rng(0)).random(128) - 1
    solved: list[int] = []
    steps: Steps = []
    fitted: Any = None
    while left and len(solved) < ROUNDS[-1]:
        # The first ones, and those of Sobol, are the pool's nearest to the points of a sequence.
        wanted = 2 * sequence.random(1)[0] - 1
        way = choose if len(solved) >= ROUNDS[0] else _sobol
        known = designs[np.array(solved, dtype=int)]
        solved.append(left.pop(way(designs[left], fitted, known, spread, wanted)))
        inputs, outputs = designs[solved], values[solved][:, None]
        if len(solved) not in ROUNDS:
            if fitted is not None:  # the lengths stay until the next round
                fitted = GaussianProcess.of(inputs, outputs, fitted.logs)
            continue
        fitted = gaussian_process(inputs, outputs)
        off = np.abs(fitted(designs[fresh])[:, 0] - values[fresh])
        errors = np.abs(left_out(inputs, outputs, NUM_FOLDS)[0] - outputs)[:, 0]
        half = conformal_quantile(errors, LEVEL)
        band = half / float(np.abs(outputs).mean())
        steps.append((len(solved), band, float((off <= half).mean())))
    return steps
