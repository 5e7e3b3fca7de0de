"""How few solves find the best design: `courant optimise` beside BoTorch alone, and chance.

256 Sobol pipes of the trial preset are solved once, below OUT/pipes (some 1,900 core-seconds; what
is solved is found again by the next run). Ten problems are drawn by a seed: one quantity to
minimise or maximise, a limit on another one.

dataset       the best feasible design of 96 pipes that are known
courant       the search from these 96, 12 solves
botorch       the same search from 12 Sobol designs, as without a dataset: its best after 40 solves
              is what the others are compared with
random        40 Sobol designs alone
optimum       of the stand-in, the best of gradient searches from the best of 8,192 designs

`optimise.json`: the ten are replayed on a stand-in for the solver, a Gaussian process on all pipes.
So failures are left out, and what a network adds.

`optimise-bands.json`: does a band hold where a search looks? Every third candidate is solved. Bands
are those of a regression on the 96 pipes, from 32 further pipes; all other pipes are the designs
drawn at random.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from scipy.optimize import minimize
from scipy.stats import qmc

from bench.report import Row, publish
from courant.optimisation import Emulator, Search, parameters_at
from courant.prediction.answers import Outcomes
from courant.prediction.bands import LEVEL, half_width
from flows.stages import NUM_FOLDS, Generation, execute
from simgen.cases import get_family
from simgen.design_space import scaled
from simgen.regression import gaussian_process, left_out
from simgen.store.versions import read_on_record

NAMES = ("pressure_loss", "branch1_share", "peak_speed")
NUM_CASES, KNOWN, CALIBRATION, START, SOLVES, OURS, WITHIN = 256, 96, 32, 12, 40, 12, 0.01
PROBLEMS, EVERY = 10, 3
FAMILY, PRESET = "branched-pipe", "trial"
#: Scaled designs (k, 5) to quantities (k, 3), NaN without an accepted solution.
Solve = Callable[[np.ndarray], np.ndarray]


def on_record(asked: Generation, designs: list[dict[str, float]]) -> tuple[np.ndarray, np.ndarray]:
    """Solve what is left of a stage's designs; return them scaled, and their quantities."""
    execute(asked)
    family, settings = asked.case_family, asked.case_family.settings(PRESET)
    cases = [family.point(design, settings).id for design in designs]  # two may be the same
    record = read_on_record(asked.url)
    assert record
    rows = [record.design[case] for case in cases]
    places = [scaled(family.design_space.parameters, row["parameters"]) for row in rows]
    values = [
        [row["quantities"][name] if row["status"] == "accepted" else np.nan for name in NAMES]
        for row in rows
    ]
    return np.array(places), np.array(values)


def stand_in(designs: np.ndarray, values: np.ndarray) -> Solve:
    """Return Gaussian processes of all solved pipes in the solver's place."""
    known = np.isfinite(values).all(axis=1)
    processes = [gaussian_process(designs[known], of[known, None]) for of in values.T]
    return lambda at: np.concatenate([of(at) for of in processes], axis=1)


def problem(seed: int, values: np.ndarray) -> Search:
    """Draw an objective, and a limit that a third to two thirds of the designs keep."""
    generator = np.random.default_rng(seed)
    goal, other = generator.permutation(len(NAMES))[:2].tolist()
    sense = ("minimise", "maximise")[int(generator.integers(2))]
    relation = (">=", "<=")[int(generator.integers(2))]
    bound = float(np.nanquantile(values[:, other], generator.uniform(1 / 3, 2 / 3)))
    limit = {"quantity": NAMES[other], "relation": relation, "bound": bound}
    asked = {"run": "", "dataset": "", "seed": seed, "limits": [limit], sense: [NAMES[goal]]}
    return Search.model_validate(asked)


def course(search: Search, values: np.ndarray) -> np.ndarray:
    """Return the best feasible objective after each of n solves, larger is better, or -inf."""
    [(goal, sign)], [limit] = search.goals.items(), search.limits
    feasible = limit.slack(values[:, NAMES.index(limit.quantity)]) >= 0
    gains = np.where(feasible, sign * values[:, NAMES.index(goal)], -np.inf)
    return np.maximum.accumulate(np.where(np.isfinite(gains), gains, -np.inf))


def optimum(search: Search, solve: Solve, num_parameters: int) -> float:
    """Return the best feasible objective, larger is better."""
    [(goal, sign)], [limit] = search.goals.items(), search.limits
    columns = NAMES.index(goal), NAMES.index(limit.quantity)
    places = 2 * qmc.Sobol(num_parameters, rng=0).random(8192) - 1
    values = solve(places)
    best = first = float(course(search, values)[-1])
    slacks = limit.slack(values[:, columns[1]])
    order = np.argsort(-np.where(slacks >= 0, sign * values[:, columns[0]], -np.inf))
    kept = {
        "type": "ineq",
        "fun": lambda at: limit.slack(solve(at[None])[0, columns[1]]) / abs(limit.bound),
    }
    for place in places[order[:4]]:
        found = minimize(
            lambda at: -sign * solve(at[None])[0, columns[0]] / abs(first),
            place,
            method="SLSQP",
            bounds=[(-1, 1)] * num_parameters,
            constraints=[kept],
        ).x
        of = solve(found[None])[0]
        if limit.slack(of[columns[1]]) >= -1e-6 * abs(limit.bound):
            best = max(best, float(sign * of[columns[0]]))
    return best


@dataclass
class Task:
    """A search from known designs, and how many it may solve."""

    search: Search
    designs: np.ndarray
    values: np.ndarray
    left: int

    def next(self) -> np.ndarray:
        """Return the scaled design to solve next."""
        columns = [NAMES.index(name) for name in self.search.names]
        emulator = Emulator(self.search, self.designs, self.values[:, columns])
        unsolved = np.isnan(self.values).any(axis=1)
        outcomes = Outcomes(designs=self.designs.tolist(), unsolved=unsolved.tolist())
        return emulator.propose(outcomes, self.search.seed + self.left)


def run(tasks: Sequence[Task], solve: Solve) -> None:
    """Run searches side by side, a design of each at a time."""
    while active := [task for task in tasks if task.left]:
        designs = np.stack([task.next() for task in active])
        for task, design, of in zip(active, designs, solve(designs), strict=True):
            task.designs = np.concatenate([task.designs, design[None]])
            task.values = np.concatenate([task.values, of[None]])
            task.left -= 1


def compared(
    problems: Sequence[Search], designs: np.ndarray, solve: Solve, solves: int
) -> tuple[list[Row], list[Task]]:
    """Return a row for each problem, and the searches from known pipes."""
    mine, alone, truth = [], [], solve(designs)
    for asked in problems:
        known = np.random.default_rng((asked.seed, 0)).permutation(len(designs))[:KNOWN]
        first = START * asked.seed + np.arange(START)
        mine.append(Task(asked, designs[known], truth[known], min(OURS, solves)))
        alone.append(Task(asked, designs[first], truth[first], solves - START))
    run([*alone, *mine], solve)
    rows: list[Row] = []
    for ours, botorch in zip(mine, alone, strict=True):
        by_chance = START * ours.search.seed + np.arange(solves)
        found = course(ours.search, ours.values)[KNOWN - 1 :]
        best = course(botorch.search, botorch.values)
        chance = course(ours.search, truth[by_chance])
        near = best[-1] - WITHIN * abs(best[-1])
        rows.append(
            {
                "problem": ours.search.title,
                "botorch": abs(best[-1]),
                "dataset": abs(found[0]),
                "courant": abs(found[-1]),
                "random": abs(chance[-1]),
                "optimum": abs(optimum(ours.search, solve, designs.shape[1])),
                "behind, %": 100 * (best[-1] - found[-1]) / abs(best[-1]),
                "solves": int(np.argmax(found >= near)) if found[-1] >= near else None,
                "of botorch": int(np.argmax(best >= near)) + 1,
            }
        )
    return rows, mine


def bands(designs: np.ndarray, values: np.ndarray, tasks: Sequence[Task], store: str) -> list[Row]:
    """Return how often bands hold, at candidates that are solved now and at random pipes."""
    held: dict[tuple[str, str, str], list[tuple[float, float, float]]] = {}
    places = [task.designs[KNOWN:][::EVERY] for task in tasks]
    parameters = get_family(FAMILY).design_space.parameters
    candidates = [parameters_at(parameters, place) for of in places for place in of]
    asked = Generation(FAMILY, preset=PRESET, store=store, design_parameters=candidates)
    found = np.split(on_record(asked, candidates)[1], len(tasks))
    for seed, (at, truth) in enumerate(zip(places, found, strict=True)):
        order = np.random.default_rng((seed, 0)).permutation(len(designs))
        known, apart, rest = np.split(order, [KNOWN, KNOWN + CALIBRATION])
        for column, name in enumerate(NAMES):
            of = values[:, column]
            calibrated, start = (rows[np.isfinite(of[rows])] for rows in (apart, known))
            for kind, inputs, outputs in (
                ("candidates", at, truth[:, column]),
                ("random", designs[rest], of[rest]),
            ):
                learned, learned_of = designs[start], of[start, None]
                solved = np.isfinite(outputs)
                pairs = zip(inputs[solved], outputs[solved], strict=True)
                for number, (place, true) in enumerate(pairs):
                    if not number or kind == "candidates":
                        process = gaussian_process(learned, learned_of)
                        errors = np.abs(process(designs[calibrated])[:, 0] - of[calibrated])
                    off = abs(float(process(place[None])[0, 0]) - true)
                    widths = {
                        rule: half_width(designs[calibrated], errors, place, LEVEL, by)
                        for rule, by in (("size near a design", None), ("deviation", process))
                    }
                    for rule, width in widths.items():
                        held.setdefault((name, kind, rule), []).append((off, width, true))
                    learned = np.concatenate([learned, place[None]])
                    learned_of = np.concatenate([learned_of, [[true]]])
    rows: list[Row] = []
    for (name, kind, rule), triples in held.items():
        off, width, true = np.array(triples).T
        rows.append(
            {
                "quantity": name,
                "designs": kind,
                "band": rule,
                "number": len(off),
                "inside, %": 100 * float((off <= width).mean()),
                "half-width, % (median)": 100 * float(np.median(width / np.abs(true))),
            }
        )
    return rows


def main(out: Path, short: bool) -> None:
    """Print the tables and write them."""
    pipes = Generation(FAMILY, preset=PRESET, cases=NUM_CASES, store=str(out / "pipes"))
    designs, values = on_record(pipes, get_family(FAMILY).design_space.sample(NUM_CASES))
    known = np.isfinite(values).all(axis=1)
    for name, of in zip(NAMES, values[known].T, strict=True):
        without = left_out(designs[known], of[:, None], NUM_FOLDS)[0][:, 0]
        share = np.abs(without - of).mean() / np.abs(of).mean()
        print(f"{name}: the stand-in is {100 * share:.3g} % off at pipes that it has not seen")
    problems = [problem(seed, values) for seed in range(2 if short else PROBLEMS)]
    solve = stand_in(designs, values)
    rows, tasks = compared(problems, designs, solve, 20 if short else SOLVES)
    reached = sum(row["solves"] is not None for row in rows)
    publish(out, "optimise", rows, within_1_percent=f"{reached} of {len(rows)}")
    if not short:
        publish(out, "optimise-bands", bands(designs, values, tasks, str(out / "candidates")))
