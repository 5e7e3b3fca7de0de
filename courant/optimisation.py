"""Search a design space for the best of a run's quantities: which design to solve next.

Notable features:
- The model of the search is a Gaussian process of each quantity over the design parameters
  (BoTorch), fitted to the training and validation cases that were solved like those of the
  training, and to the candidates solved so far. Test and calibration cases are never read.
- A candidate maximises the expected improvement over the feasible designs that are known, with
  several objectives that of the volume which they dominate. Its gradients are those of the
  Gaussian processes, which are exact. Nothing is differentiated through the network: each candidate
  is meshed, and what the predicted fields add is in its predicted value, which has a band.
- Designs near others without an accepted solution are less likely to be chosen.

`Search` is the record of one search: what is asked for, and every candidate with its predicted and
solved values.
"""

from __future__ import annotations

import hashlib
import math
import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from pydantic import Field

from courant.evaluation.metrics import finite_or_none
from courant.experiment import Frozen
from courant.prediction.answers import REGRESSION, Outcomes
from courant.prediction.bands import QuantityBand, shared_ranges
from simgen.design_space import Parameter
from simgen.errors import CaseError, InputError, SimgenError
from simgen.regression import spans_decade

if TYPE_CHECKING:
    import torch

    from courant.prediction.surrogate import Surrogate
    from simgen.store.read import Dataset

RECORD, TABLE, BEST = "search.json", "optimum.csv", "best.csv"
SAMPLES, RESTARTS, LOOKED_AT = 128, 8, 4096
LEAST = 1e-300  # In place of bounds without a logarithm, which are below all values
SAME = 1e-3  # Distance of scaled designs below which they are one
SURE = 3.0  # Standard deviations by which a limit has to be out of reach everywhere
_LIMIT = re.compile(r"\s*([A-Za-z]\w*)\s*(>=|<=)\s*(\S+)\s*")


class Limit(Frozen):
    """A constraint: quantity >= bound, or <=."""

    quantity: str
    relation: Literal[">=", "<="]
    bound: float

    def slack(self, values: Any) -> Any:
        """Return by how much values keep the limit, negative where they do not."""
        return values - self.bound if self.relation == ">=" else self.bound - values

    def __str__(self) -> str:
        return f"{self.quantity} {self.relation} {self.bound:g}"


def parse_limit(text: str) -> Limit:
    """Parse `head>=60`; InputError for anything else."""
    found = _LIMIT.fullmatch(text)
    try:
        bound = float(found[3]) if found else math.nan
    except ValueError:
        bound = math.nan
    if not found or not math.isfinite(bound):
        raise InputError(f"--subject-to {text}: write QUANTITY>=NUMBER or QUANTITY<=NUMBER")
    return Limit(quantity=found[1], relation=">=" if found[2] == ">=" else "<=", bound=bound)


class Candidate(Frozen):
    """A design that was chosen; its values by quantity."""

    case: str
    design: dict[str, float]
    predicted: dict[str, float | None]
    bands: dict[str, QuantityBand] = Field(default_factory=dict)  # Without those that have none
    sources: dict[str, str] = Field(default_factory=dict)
    status: str = "chosen"  # Then that of the case: accepted, rejected or failed
    reason: str = ""
    solved: dict[str, float | None] = Field(default_factory=dict)

    def answer(self, names: Sequence[str]) -> str:
        """Return the predicted values with their bands: `61.2 ± 0.9`."""
        found = []
        for name in names:
            band, value = self.bands.get(name), self.predicted.get(name)
            around = "" if band is None else f" ± {band.half_width:.2g}"
            found.append("nothing" if value is None else f"{value:.4g}{around}")
        return ", ".join(found)

    def line(self, names: Sequence[str]) -> str:
        """Return for the screen how it ended: `b0159c13a91f accepted: head 61.2 (60.8 +- 0.9)`."""
        parts = []
        for name in names:
            solved = self.solved.get(name)
            value = "without a value" if solved is None else f"{solved:.4g}"
            parts.append(f"{name} {value} (predicted {self.answer([name])})")
        what = ", ".join(parts) if self.status == "accepted" else self.reason
        return f"candidate {self.case} {self.status}: {what}"

    def inside(self, name: str) -> bool | None:
        """Return whether the solved value is in the band; None where one of them is missing."""
        solved, predicted = self.solved.get(name), self.predicted.get(name)
        band = self.bands.get(name)
        if solved is None or predicted is None or band is None:
            return None
        return abs(solved - predicted) <= band.half_width


class Search(Frozen):
    """What is asked for, and the candidates so far."""

    run: str
    dataset: str
    maximise: tuple[str, ...] = ()
    minimise: tuple[str, ...] = ()
    limits: tuple[Limit, ...] = ()
    seed: int = 42
    known: dict[str, dict[str, float | None]] = Field(default_factory=dict)
    """By case of the dataset before the search, the quantities of training and validation cases"""
    candidates: tuple[Candidate, ...] = ()

    @property
    def name(self) -> str:
        """Return the name of the search's folder, which follows from what is asked for."""
        digest = hashlib.sha256(f"{self.title}, seed {self.seed}".encode()).hexdigest()
        return f"{'-'.join(self.goals)}-{digest[:8]}".replace("_", "-")

    def of(self, *candidates: Candidate) -> Search:
        """Return the search with these candidates."""
        return self.model_copy(update={"candidates": candidates})

    @property
    def goals(self) -> dict[str, float]:
        """Return each objective with its sign: 1 for those to maximise, else -1."""
        return dict.fromkeys(self.maximise, 1.0) | dict.fromkeys(self.minimise, -1.0)

    @property
    def names(self) -> tuple[str, ...]:
        """Return the quantities that are asked about."""
        return tuple(dict.fromkeys([*self.goals, *(each.quantity for each in self.limits)]))

    @property
    def title(self) -> str:
        """Return in words what is asked for."""
        parts = [f"maximise {name}" for name in self.maximise]
        parts += [f"minimise {name}" for name in self.minimise]
        limits = ", ".join(map(str, self.limits))
        return ", ".join(parts) + (f" subject to {limits}" if limits else "")

    @property
    def solved(self) -> dict[str, dict[str, float | None]]:
        """Return the values of all cases: known before, and accepted candidates."""
        ours = {each.case: each.solved for each in self.candidates if each.status == "accepted"}
        return {**self.known, **ours}

    def is_feasible(self, values: Mapping[str, float | None]) -> bool:
        """Return whether all objectives are known and all limits kept."""
        numbers = {name: values.get(name) for name in self.names}
        return all(value is not None for value in numbers.values()) and all(
            each.slack(numbers[each.quantity]) >= 0 for each in self.limits
        )

    def doubts(self, candidate: Candidate) -> Iterator[str]:
        """Yield why a candidate may be no good: a band of no use, or a limit that it misses."""
        for name, band in candidate.bands.items():
            known = [value for of in self.known.values() if (value := of.get(name)) is not None]
            if name in self.names and known and band.half_width >= np.std(known):
                yield (
                    f"the band of {name} is ± {band.half_width:.2g}, the known designs differ by ±"
                    f" {np.std(known):.2g}: this is hardly better than a random design; more cases"
                    " make it narrower"
                )
        for limit in self.limits:
            value = candidate.predicted.get(limit.quantity)
            if value is not None and limit.slack(value) < 0:
                yield f"{limit} is predicted to be missed ({value:.4g}); solved to learn more of it"

    def front(self, values: Mapping[str, Mapping[str, float | None]]) -> list[str]:
        """Return the feasible cases that none dominates: of one goal the best."""
        cases = [case for case, of in values.items() if self.is_feasible(of)]
        goals = self.goals.items()
        points = np.array([[sign * (values[c][g] or 0.0) for g, sign in goals] for c in cases])
        kept = []
        for case, point in zip(cases, points, strict=True):
            better = (points >= point).all(axis=1) & (points > point).any(axis=1)
            if not better.any():
                kept.append(case)
        return kept if len(self.goals) > 1 else kept[:1]

    @property
    def verdict(self) -> str:
        """Return in a sentence what was found, beside the best of the cases known before."""
        accepted = [each for each in self.candidates if each.status == "accepted"]
        found, before = self.front(self.solved), self.front(self.known)
        judged = [each.inside(name) for each in accepted for name in self.names]
        inside = [held for held in judged if held is not None]
        held = f"; {sum(inside)} of {len(inside)} solved values lie in their band" if inside else ""
        number = f"{len(accepted)} of {len(self.candidates)} candidates have an accepted solution"

        def values(case: str) -> str:
            of = self.solved[case]
            return ", ".join(f"{n.replace('_', ' ')} {of[n]:.4g}" for n in self.names)

        if not found:
            return f"No design found keeps the limits: {self.title}. {number}{held}."
        if len(self.goals) > 1:
            new = sum(case not in self.known for case in found)
            return (
                f"{len(found)} designs are on the Pareto front, {new} of them found by this search."
                f" {number}{held}."
            )
        best = f"{values(found[0])} (case {found[0]})"
        ours = next((each for each in accepted if each.case == found[0]), None)
        if ours is not None:
            best += f", predicted {ours.answer(self.names)}"
        if found == before:
            return f"No candidate is better than the best known before, {best}. {number}{held}."
        than = f"; the best known before had {values(before[0])}" if before else ""
        return f"Solved: {best}{than}. {number}{held}."


def known_cases(dataset: Dataset, settings: Mapping[str, float]) -> list[str]:
    """Return the cases that a search may learn from: of training and validation, solved alike."""
    cases = [*dataset.cases("validation"), *dataset.cases("train")]
    return [case for case in cases if dataset.records[case]["settings"] == settings]


def known_values(
    dataset: Dataset, names: Sequence[str], settings: Mapping[str, float]
) -> dict[str, dict[str, float | None]]:
    """Return the quantities of training and validation cases that were solved with settings."""
    from courant.evaluation.quantities import recorded

    cases = known_cases(dataset, settings)
    columns = [map(finite_or_none, recorded(dataset, name, cases)) for name in names]
    rows = zip(*columns, strict=True)
    return {case: dict(zip(names, row, strict=True)) for case, row in zip(cases, rows, strict=True)}


class Emulator:
    """Gaussian processes of quantities over scaled designs, and what BoTorch proposes by them."""

    def __init__(self, search: Search, designs: np.ndarray, values: np.ndarray) -> None:
        """Fit values (n, q) of the search's quantities at designs (n, P); InputError for few."""
        import torch
        from botorch.fit import fit_gpytorch_mll
        from botorch.models import ModelListGP, SingleTaskGP
        from botorch.models.transforms import Normalize
        from gpytorch.mlls import ExactMarginalLogLikelihood

        least, models, in_logs = designs.shape[1] + 2, [], []
        cube = [[-1.0, 1.0]] * designs.shape[1]
        for name, column in zip(search.names, values.T, strict=True):
            known = np.isfinite(column)
            if known.sum() < least or not np.ptp(column[known]):
                raise InputError(
                    f"{name} is on record with different finite values for {known.sum()} training"
                    f" and validation cases, a search needs {least}; generate more cases"
                )
            in_logs.append(spans_decade(column[known]))
            outputs = np.log(column[known]) if in_logs[-1] else column[known]
            model = SingleTaskGP(
                torch.as_tensor(designs[known]),
                torch.as_tensor(outputs[:, None]),
                input_transform=Normalize(len(cube), bounds=torch.tensor(cube).T),
            )
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                fit_gpytorch_mll(ExactMarginalLogLikelihood(model.likelihood, model))
            models.append(model)
        self.search, self.model = search, ModelListGP(*models)
        self.in_logs = dict(zip(search.names, in_logs, strict=True))
        self.limits = [
            each.model_copy(update={"bound": math.log(max(each.bound, LEAST))})
            if self.in_logs[each.quantity]
            else each
            for each in search.limits
        ]
        self.known = torch.as_tensor(designs[np.isfinite(values).all(axis=1)])
        self.ranges = shared_ranges(designs)

    @classmethod
    def of(cls, search: Search, dataset: Dataset, settings: Mapping[str, float]) -> Emulator:
        """Fit the cases that were solved with settings; InputError for unreachable limits."""
        from courant.evaluation.quantities import recorded, scaled_designs

        cases = known_cases(dataset, settings)
        columns = [recorded(dataset, name, cases) for name in search.names]
        found = cls(search, scaled_designs(dataset, cases), np.stack(columns, axis=1))
        found.check_reachable()
        return found

    def choose(
        self, surrogate: Surrogate, outcomes: Outcomes, dataset: Dataset, number: int
    ) -> dict[str, float]:
        """Return the parameters of a candidate, in five digits, within the ranges of bands."""
        if surrogate.bands is not None:
            self.ranges = surrogate.bands.ranges
        place = self.propose(outcomes, self.search.seed + number)
        return parameters_at(dataset.schema.parameters, place)

    def check_reachable(self) -> None:
        """Raise InputError if no design can keep the limits, as far as is known."""
        import torch

        search = self.search
        if not search.limits:
            return
        with torch.no_grad():
            posterior = self.model.posterior(torch.cat([self.spread(search.seed), self.known]))
            means, deviations = posterior.mean.numpy(), posterior.variance.sqrt().numpy()
        columns = {name: search.names.index(name) for name in search.names}
        slacks = []
        for limit, scaled_limit in zip(search.limits, self.limits, strict=True):
            column = columns[limit.quantity]
            slacks.append(scaled_limit.slack(means[:, column]) + SURE * deviations[:, column])
            if slacks[-1].max() < 0:
                ends = np.array([means[:, column].min(), means[:, column].max()])
                ends = np.exp(ends) if self.in_logs[limit.quantity] else ends
                raise InputError(
                    f"no design can be expected to have {limit}: over the design space"
                    f" {limit.quantity} is {ends[0]:.4g} to {ends[1]:.4g}; give another limit"
                )
        if np.min(slacks, axis=0).max() < 0:
            listed = " and ".join(map(str, search.limits))
            raise InputError(f"no design can be expected to have both {listed}; give other limits")

    def spread(self, seed: int) -> torch.Tensor:
        """Return designs (n, P) all over the ranges."""
        import torch

        low, high = torch.tensor(self.ranges, dtype=torch.double).T
        sobol = torch.quasirandom.SobolEngine(len(low), scramble=True, seed=seed)
        return low + sobol.draw(LOOKED_AT, dtype=torch.double) * (high - low)

    def propose(self, outcomes: Outcomes, seed: int) -> np.ndarray:
        """Return the scaled design (P,) to solve next."""
        import torch
        from botorch.acquisition.logei import qLogNoisyExpectedImprovement
        from botorch.acquisition.multi_objective.logei import (
            qLogNoisyExpectedHypervolumeImprovement,
        )
        from botorch.acquisition.multi_objective.objective import WeightedMCMultiOutputObjective
        from botorch.acquisition.objective import GenericMCObjective
        from botorch.optim import optimize_acqf
        from botorch.sampling import SobolQMCNormalSampler

        search = self.search
        columns = {name: number for number, name in enumerate(search.names)}
        # Negative where it is kept.
        constraints = [
            lambda values, each=each: -each.slack(values[..., columns[each.quantity]])
            for each in self.limits
        ] or None
        goals = [(columns[name], sign) for name, sign in search.goals.items()]
        common: dict[str, Any] = {
            "model": self.model,
            "X_baseline": self.known,
            "sampler": SobolQMCNormalSampler(torch.Size([SAMPLES]), seed=seed),
            "constraints": constraints,
            "prune_baseline": True,
            "cache_root": False,
        }
        with warnings.catch_warnings(), torch.random.fork_rng(devices=[]):
            warnings.simplefilter("ignore")
            torch.manual_seed(seed)
            if len(goals) == 1:
                [(column, sign)] = goals
                objective = GenericMCObjective(lambda values, X=None: sign * values[..., column])
                acquisition: Any = qLogNoisyExpectedImprovement(objective=objective, **common)
            else:
                outcomes_of, signs = zip(*goals, strict=True)
                weights = torch.tensor(signs, dtype=torch.double)
                with torch.no_grad():
                    means = self.model.posterior(self.known).mean[:, list(outcomes_of)] * weights
                low, high = means.aminmax(dim=0)
                acquisition = qLogNoisyExpectedHypervolumeImprovement(
                    ref_point=(low - 0.1 * (high - low)).tolist(),
                    objective=WeightedMCMultiOutputObjective(weights, list(outcomes_of)),
                    **common,
                )
            places, gains = optimize_acqf(
                acquisition,
                bounds=torch.tensor(self.ranges, dtype=torch.double).T,
                q=1,
                num_restarts=RESTARTS,
                raw_samples=SAMPLES,
                return_best_only=False,
                options={"maxiter": 100},
            )
            with torch.no_grad():  # for where all of these are on record
                others = self.spread(seed)[:SAMPLES, None]
                places, gains = torch.cat([places, others]), torch.cat([gains, acquisition(others)])
        found = places[:, 0].numpy()
        chances = np.array([1.0 - outcomes.unsolved_near(each) for each in found])
        weighed = np.asarray(gains) + np.log(np.maximum(chances, 1e-9))  # both are logarithms
        # What is on record is not solved again.
        apart = np.linalg.norm(found[:, None] - np.asarray(outcomes.designs), axis=-1).min(axis=1)
        weighed[apart < SAME] = -np.inf
        return np.asarray(found[int(np.argmax(weighed))])


def parameters_at(parameters: Sequence[Parameter], place: np.ndarray) -> dict[str, float]:
    """Return the parameters of a scaled design (P,), in five digits."""
    found = {}
    for each, at in zip(parameters, place.tolist(), strict=True):
        value = float(f"{each.low + (at + 1) / 2 * (each.high - each.low):.5g}")
        found[each.name] = each.check(min(max(value, each.low), each.high))
    return found


def predicted(
    surrogate: Surrogate, case: str, design: dict[str, float], place: str | None = None
) -> Candidate:
    """Return a candidate with the answers for it and their bands.

    They are those of the regression alone where fields cannot be predicted, as of a transient model
    without a state to start from.
    """
    from courant.prediction.surrogate import NotFiniteError
    from simgen.solving.unsolved import UnmeshableError

    answers, at = surrogate.answers, surrogate.scaled(design)[None]
    values = {name: float(of[0]) for name, of in answers.at(at, {}, False).items()}
    sources = dict.fromkeys(values, REGRESSION)
    bands = surrogate.quantity_bands(at[0], values, False)
    if surrogate.step_s is None:
        with suppress(CaseError, NotFiniteError, UnmeshableError):
            found = surrogate.predict_design(design, place=place)
            values, sources = dict(found.quantities), dict(found.sources)
            bands = dict(found.bands.quantities)
    return Candidate(
        case=case,
        design=design,
        predicted={name: finite_or_none(value) for name, value in values.items()},
        bands=bands,
        sources=sources,
    )


def ended(
    candidate: Candidate, on_record: Mapping[str, Mapping[str, Any]], names: Sequence[str]
) -> Candidate:
    """Return a candidate as it is on record."""
    record = on_record.get(candidate.case)
    if record is None:
        raise SimgenError(f"candidate {candidate.case} is not on record; run again")
    solved = {}
    if record["status"] == "accepted":
        known = {name: of for name, of in record["quantities"].items() if of is not None}
        solved = {name: finite_or_none(known.get(name, math.nan)) for name in names}
    changed = {"status": record["status"], "reason": record["reason"], "solved": solved}
    return candidate.model_copy(update=changed)


def table_text(search: Search) -> str:
    """Return the candidates as CSV: parameters, then predicted, half-width, solved, inside."""
    import pandas  # commands that find their work done do without

    rows, front = [], search.front(search.solved)
    for number, each in enumerate(search.candidates, 1):
        row: dict[str, Any] = {"solve": number, "case": each.case, "status": each.status}
        row |= each.design
        for name in search.names:
            row[f"{name}_predicted"] = each.predicted.get(name)
            band = each.bands.get(name)
            row[f"{name}_half_width"], row[f"{name}_band"] = band and band.half_width, band
            row[f"{name}_solved"], row[f"{name}_inside"] = each.solved.get(name), each.inside(name)
        row["feasible"] = search.is_feasible(each.solved) if each.solved else None
        rows.append({**row, "best": each.case in front})
    return str(pandas.DataFrame(rows, dtype=object).to_csv(index=False))
