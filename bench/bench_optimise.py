"""How few solves find the best design: `courant optimise` beside BoTorch alone, and chance.

The pipes are solved once, 96 Sobol designs on a mesh of 9 mm, below OUT/pipes (some 20 minutes of
two cores; the next run finds them). Searches are replayed on a stand-in for the solver, a Gaussian
process on all of them: ten problems with 40 solves each would take hours. So the solver's noise,
failures and rejections are left out, and so is what a network adds to the answers.

Problems are drawn by a seed: one quantity to minimise or maximise, a limit on another one.

dataset       the best feasible design of the 48 that are known
courant       the search from these 48
botorch       the same search from 12 Sobol designs, as without a dataset; its best after 40 solves
              is what the others are compared with
random        Sobol designs alone
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import qmc

import simgen
from courant.evaluation.quantities import scaled_designs
from courant.optimisation import Emulator, Search
from courant.prediction.bands import Outcomes
from flows.stages import Generation, execute
from simgen.regression import gaussian_process

NAMES = ("pressure_loss", "branch1_share", "peak_speed")
NUM_CASES, KNOWN, START, SOLVES, OURS, WITHIN = 96, 48, 12, 40, 12, 0.01
ANYWHERE = Outcomes(designs=((0.0,),), unsolved=(False,))
Solve = Callable[[np.ndarray], np.ndarray]


def stand_in(out: Path) -> tuple[Solve, np.ndarray]:
    """Return the solver's stand-in, designs (k, 5) to quantities (k, 3), and the solved designs."""
    store = str((out / "pipes").resolve())
    published = execute(
        Generation("branched-pipe", cases=NUM_CASES, store=store, settings={"mesh_size": 9.0})
    )
    dataset = simgen.open_dataset(published.dataset, published.version)
    designs = scaled_designs(dataset, dataset.cases())
    values = dataset.design.loc[dataset.cases(), list(NAMES)].to_numpy(float)
    processes = [gaussian_process(designs, np.log(of)[:, None]) for of in values.T]
    return lambda at: np.exp(np.concatenate([of(at) for of in processes], axis=1)), designs


def problem(seed: int, values: np.ndarray) -> Search:
    """Draw an objective, and a limit that a third to two thirds of the designs keep."""
    generator = np.random.default_rng(seed)
    goal, other = generator.permutation(len(NAMES))[:2].tolist()
    sense = ("minimise", "maximise")[int(generator.integers(2))]
    relation = (">=", "<=")[int(generator.integers(2))]
    bound = float(np.quantile(values[:, other], generator.uniform(1 / 3, 2 / 3)))
    limit = {"quantity": NAMES[other], "relation": relation, "bound": bound}
    asked = {"run": "", "dataset": "", "seed": seed, "limits": [limit], sense: [NAMES[goal]]}
    return Search.model_validate(asked)


def course(search: Search, values: np.ndarray) -> np.ndarray:
    """Return the best feasible objective, larger is better, after each of n solves; NaN without."""
    [(goal, sign)], [limit] = search.goals.items(), search.limits
    feasible = limit.slack(values[:, NAMES.index(limit.quantity)]) >= 0
    gains = np.where(feasible, sign * values[:, NAMES.index(goal)], -np.inf)
    return np.maximum.accumulate(gains)


def searched(search: Search, solve: Solve, start: np.ndarray, num: int) -> np.ndarray:
    """Return the values of `start`, and of `num` candidates that are chosen and solved in turn."""
    designs, columns = start, [NAMES.index(name) for name in search.names]
    for number in range(num):
        emulator = Emulator(search, designs, solve(designs)[:, columns])
        place = emulator.propose(ANYWHERE, search.seed + number)
        designs = np.concatenate([designs, place[None]])
    return solve(designs)


def main(out: Path, short: bool) -> None:
    """Print the table, and write optimise.json."""
    num_problems, solves, ours = (2, 20, 6) if short else (10, SOLVES, OURS)
    solve, designs = stand_in(out)
    rows: list[dict[str, Any]] = []
    print("problem  best of botorch, dataset, courant, random  solves of courant, botorch  seconds")
    for seed in range(num_problems):
        began = time.process_time()
        asked = problem(seed, solve(designs))
        subset = np.random.default_rng(seed).choice(len(designs), KNOWN, replace=False)
        sobol = 2 * qmc.Sobol(designs.shape[1], rng=seed).random(64) - 1
        alone = course(asked, searched(asked, solve, sobol[:START], solves - START))
        mine = course(asked, searched(asked, solve, designs[subset], ours))[KNOWN - 1 :]
        chance = course(asked, solve(sobol[:solves]))
        target = alone[-1] - WITHIN * abs(alone[-1])
        rows.append(
            {
                "problem": asked.title,
                "botorch": float(alone[-1]),
                "dataset": float(mine[0]),
                "courant": float(mine[-1]),
                "random": float(chance[-1]),
                "courant_solves": int(np.argmax(mine >= target)) if mine[-1] >= target else None,
                "botorch_solves": int(np.argmax(alone >= target)) + 1,
                "processor_s": time.process_time() - began,
            }
        )
        cells = [
            f"{value:.4g}" if isinstance(value, float) else value for value in rows[-1].values()
        ]
        print("  ".join(map(str, cells)), flush=True)
    reached = [row["courant_solves"] for row in rows if row["courant_solves"] is not None]
    print(
        f"within 1 % of BoTorch's best after {solves} solves: {len(reached)} of {len(rows)}"
        f" problems, with {max(reached, default=0)} solves at most beyond the dataset"
    )
    (out / "optimise.json").write_text(json.dumps(rows, indent=1))
