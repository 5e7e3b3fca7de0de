"""Measure the quantities of interest of predicted fields, beside the null: parameters alone.

Truth and prediction are computed in the same way, from fields on the stored cloud, so that they
differ by the fields alone. A transient case is rolled out from where training windows begin to its
end; its quantities are those of the times from which the family takes them.

The null is a Gaussian process on the design parameters, fitted to the quantities that the training
cases have on record: few smooth numbers of few parameters are easily regressed. A network whose
fields give a quantity less well has learned nothing of use about it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from courant.evaluation.record import QuantityScore
from courant.prediction.surrogate import NotFiniteError, Surrogate, by_field, quantities_from
from simgen.case import CaseFamily
from simgen.cases import FAMILIES
from simgen.design_space import scaled
from simgen.errors import InputError
from simgen.point_cloud import BoundaryCloud, PointCloud
from simgen.quantities import CaseFields, Quantity, obtainable
from simgen.regression import (
    LEAST_DESIGNS,
    GaussianProcess,
    Regression,
    Sensitivity,
    gaussian_process,
    least_squares,
    sobol_indices,
)
from simgen.store.read import Dataset, StoredCase

Pair = tuple[dict[str, float], dict[str, float]]
"""Quantities by name, of the solved and of the predicted fields of a case"""
#: For a rank correlation.
LEAST_CASES = 3
#: Predicted for each parameter, at most, to measure dependences.
DESIGNS = 12
#: Standard deviation of a figure over its size, below which it is the same for all designs.
_LEAST_SPREAD = 1e-9


def family_of(dataset: Dataset) -> CaseFamily | None:
    """Return the family whose quantities a dataset's cases have; None where there are none.

    Cases of another source, or without a boundary cloud, have no quantities of a family.
    """
    schema = dataset.schema
    if schema.source is not None or not schema.boundary:
        return None
    family = FAMILIES.get(schema.family)
    return family if family is not None and family.quantities else None


def recorded(dataset: Dataset, name: str, cases: Sequence[str]) -> np.ndarray:
    """Return a quantity as the solver measured it, (cases,); NaN where it is not on record."""
    if name not in dataset.design:
        return np.full(len(cases), math.nan)
    return dataset.design.loc[list(cases), name].to_numpy(float)


def scaled_designs(dataset: Dataset, cases: Sequence[str]) -> np.ndarray:
    """Return (cases, P) parameters from the dataset's table, scaled to -1..1 over their ranges."""
    parameters = dataset.schema.parameters
    names = [each.name for each in parameters]
    rows = dataset.design.loc[list(cases), names].to_numpy(float).tolist()
    designs = [scaled(parameters, dict(zip(names, row, strict=True))) for row in rows]
    return np.array(designs).reshape(-1, len(parameters))


def fit_quantity(designs: np.ndarray, values: np.ndarray) -> GaussianProcess | None:
    """Fit values (n,) to scaled designs (n, P); NaN values are left out.

    None where too few are left, where there are no parameters, or all values are the same.
    """
    usable = np.isfinite(values)
    known = values[usable]
    if usable.sum() < designs.shape[1] + 2 or not designs.shape[1] or not known.std():
        return None
    return gaussian_process(designs[usable], known[:, None])


def measure_quantities(
    surrogate: Surrogate, dataset: Dataset, ids: Sequence[str]
) -> dict[str, Any]:
    """Return `quantities` and `not_predicted` of an `Evaluation`."""
    family = family_of(dataset)
    if family is None:
        return {}
    _, reasons = obtainable(family.quantities, surrogate.channels)
    pairs = {id_: solved_and_predicted(surrogate, dataset, dataset[id_]) for id_ in ids}
    scores = score_quantities(surrogate, dataset, pairs, dataset.cases("train"))
    return {"quantities": scores, "not_predicted": reasons}


def solved_and_predicted(surrogate: Surrogate, dataset: Dataset, case: StoredCase) -> Pair:
    """Compute a case's quantities of solved and of predicted fields; empty where it has none."""
    family = family_of(dataset)
    if family is None:
        return {}, {}
    wanted, _ = obtainable(family.quantities, surrogate.channels)
    times, predicted = _predict(surrogate, family, wanted, case)
    names = {component.rpartition(".")[0] for each in wanted for component in each.needs}
    solved = case.read(*sorted(names)) if names else {}
    if times is not None:
        frames = [int(np.abs(np.asarray(case.time) - time).argmin()) for time in times]
        solved = {name: values[frames] for name, values in solved.items()}
    return _compute(family, wanted, case, solved, times), predicted


def _predict(
    surrogate: Surrogate, family: CaseFamily, wanted: Sequence[Quantity], case: StoredCase
) -> tuple[np.ndarray | None, dict[str, float]]:
    """Return times and quantities of the prediction of a whole case; NaN where it is not finite."""
    problem = surrogate.problem
    start = problem.start(case)
    steps = problem.steps_to_end(case, start)
    times = None if start is None else surrogate.times(start, steps)
    try:
        values = surrogate.predict_case(case, start_s=start, steps=steps)
    except NotFiniteError:
        # A rollout over many more steps than it was trained on may leave the finite numbers.
        return times, dict.fromkeys((each.name for each in wanted), math.nan)
    fields = by_field(values, surrogate.normaliser.channels)
    return times, _compute(family, wanted, case, fields, times)


def _compute(
    family: CaseFamily,
    wanted: Sequence[Quantity],
    case: StoredCase,
    fields: Mapping[str, np.ndarray],
    times: np.ndarray | None,
) -> dict[str, float]:
    """Compute quantities of fields on a case's cloud, from the settled state on."""
    faces, kinds = case.boundary, tuple(case.patch_kinds)
    boundary = BoundaryCloud(faces.points, faces.normals, faces.areas, faces.patch)
    cloud = PointCloud(case.points, None, None, None, kinds, times, fields, boundary)
    of_case = CaseFields(case.parameters, case.settings, cloud)
    return quantities_from(wanted, of_case, family.settled_from_s(case.settings))


def score_quantities(
    surrogate: Surrogate, dataset: Dataset, pairs: Mapping[str, Pair], train: Sequence[str]
) -> dict[str, QuantityScore]:
    """Score the quantities of cases by id, beside a null that is fitted to the cases `train`."""
    family = family_of(dataset)
    if family is None:
        return {}
    cases = list(pairs)
    designs, known_designs = scaled_designs(dataset, cases), scaled_designs(dataset, train)

    def by_case(values: np.ndarray) -> dict[str, float | None]:
        finite = [float(value) if np.isfinite(value) else None for value in values]
        return dict(zip(cases, finite, strict=True))

    scores = {}
    for each in obtainable(family.quantities, surrogate.channels)[0]:
        truth = np.array([solved[each.name] for solved, _ in pairs.values()])
        predicted = np.array([of_model[each.name] for _, of_model in pairs.values()])
        fit = fit_quantity(known_designs, recorded(dataset, each.name, train))
        null = fit(designs)[:, 0] if fit else np.full(len(cases), math.nan)
        error, rank = _error_and_rank(predicted, truth)
        null_error, null_rank = _error_and_rank(null, recorded(dataset, each.name, cases))
        scores[each.name] = QuantityScore(
            unit=each.unit,
            meaning=each.meaning,
            truth=by_case(truth),
            predicted=by_case(predicted),
            null=by_case(null) if fit else {},
            error=error,
            rank_correlation=rank,
            null_error=null_error,
            null_rank_correlation=null_rank,
        )
    return scores


def _error_and_rank(predicted: np.ndarray, truth: np.ndarray) -> tuple[float | None, float | None]:
    """Return the relative error and the rank correlation, over the cases whose truth is known."""
    # None where one has no prediction: these are the hard ones, and the others would flatter.
    known = np.isfinite(truth)
    predicted, truth = predicted[known], truth[known]
    if not np.isfinite(predicted).all():
        return None, None
    size = np.abs(truth).sum()
    error = float(np.abs(predicted - truth).sum() / size) if size else None
    if len(truth) < LEAST_CASES or not np.ptp(predicted) or not np.ptp(truth):
        return error, None
    from scipy.stats import spearmanr  # half a second, which only an evaluation needs

    return error, float(spearmanr(predicted, truth).statistic)


@dataclass(frozen=True)
class Dependence:
    """The Sobol indices of one quantity; None where the designs do not give them."""

    solved: Sensitivity | None
    predicted: Sensitivity | None


def dependences(surrogate: Surrogate, dataset: Dataset) -> dict[str, Dependence]:
    """Return the dependence of each predicted quantity on the parameters; empty with few designs.

    Both are of a Gaussian process: fitted to the quantities of the model's predictions for some of
    the dataset's designs, and to those on record of all solved ones. Where the two differ, the
    model has learned another dependence than the solver has.
    """
    family, parameters = family_of(dataset), dataset.schema.parameters
    ids = dataset.cases()
    if family is None or not parameters or len(ids) < LEAST_DESIGNS * len(parameters):
        return {}
    wanted, _ = obtainable(family.quantities, surrogate.channels)
    number = min(len(ids), DESIGNS * len(parameters))
    chosen = sorted(np.random.default_rng(0).permutation(len(ids))[:number].tolist())
    predicted = [_predict(surrogate, family, wanted, dataset[ids[place]])[1] for place in chosen]
    designs = [dataset[case].parameters for case in ids]
    some = [designs[place] for place in chosen]
    return {
        each.name: Dependence(
            sobol_indices(parameters, designs, recorded(dataset, each.name, ids)),
            sobol_indices(parameters, some, [of_case[each.name] for of_case in predicted]),
        )
        for each in wanted
    }


REGRESSIONS: dict[str, Regression] = {
    "least squares": least_squares,
    "Gaussian process": gaussian_process,
}


@dataclass(frozen=True)
class FigureScore:
    """The error of a regression of one figure, over the cases of a split."""

    figure: str
    regression: str
    r2: float
    """1 - squared error over that of the split's own mean; negative is worse than that mean, nan is
    a split whose cases share one value
    """
    nmae: float
    """Sum of absolute errors over the sum of absolute values; nan where these are all zero"""
    num_train: int
    num_cases: int


def regress_figures(dataset: Dataset, split: str = "test") -> list[FigureScore]:
    """Predict the figures in the provenance of a split's cases, such as the head of a pump.

    Each regression is fitted to the design parameters of the training cases. Figures that a case
    lacks, or that do not vary over the training cases, are left out. InputError where there are no
    design parameters, or too few cases.
    """
    train, cases = dataset.cases("train"), dataset.cases(split)
    if not dataset.schema.parameters:
        raise InputError(f"{dataset.url} has no design parameters to regress figures on")
    if len(train) < 2 or len(cases) < 2:
        raise InputError(
            f"{dataset.url} {dataset.version} has {len(train)} training and {len(cases)} {split}"
            " cases, two each are needed; generate more cases"
        )
    stored = [dataset[case].provenance.get("figures", {}) for case in (*train, *cases)]
    tables = {
        name: np.array([each[name] for each in stored], dtype=float)
        for name in sorted(set.intersection(*map(set, stored)))
    }
    designs, others = scaled_designs(dataset, train), scaled_designs(dataset, cases)
    scores = []
    for regression, fit in REGRESSIONS.items():
        for name, values in tables.items():
            known, truth = values[: len(train)], values[len(train) :]
            spread_out = known.std() > _LEAST_SPREAD * np.abs(values).max()
            if not np.isfinite(values).all() or not spread_out:
                continue
            wrong = fit(designs, known[:, None])(others)[:, 0] - truth
            spread, size = ((truth - truth.mean()) ** 2).sum(), np.abs(truth).sum()
            r2 = float(1 - (wrong**2).sum() / spread) if spread else math.nan
            nmae = float(np.abs(wrong).sum() / size) if size else math.nan
            scores.append(FigureScore(name, regression, r2, nmae, len(train), len(cases)))
    return scores
