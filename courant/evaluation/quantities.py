"""Regress the scalar figures of cases on their design parameters alone: the null of a network.

A case's figures, such as the head of a pump, are in its provenance. Few smooth numbers of few
parameters are easily regressed: on a well-known drag benchmark least squares reaches an R2 of 0.97.
A network whose fields give a figure less well than this has learned nothing of use about it.

    for row in regress_figures(simgen.open_dataset("STORE/centrifugal-pump")):
        print(row.figure, row.regression, row.r2)
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from courant.evaluation.record import QuantityScore
from courant.prediction.design import by_field, family_with_quantities, quantities_from
from courant.prediction.surrogate import NotFiniteError, Surrogate
from simgen.case import CaseFamily
from simgen.design_space import scaled
from simgen.errors import InputError
from simgen.point_cloud import BoundaryCloud, PointCloud
from simgen.publish.dataset_figures import LEAST_DESIGNS, Sensitivity, sobol_indices
from simgen.quantities import CaseFields, Quantity, obtainable
from simgen.regression import GaussianProcess, Regression, gaussian_process, least_squares
from simgen.store.read import Dataset, StoredCase

if TYPE_CHECKING:
    from simgen.store.read import Dataset


REGRESSIONS: dict[str, Regression] = {
    "least squares": least_squares,
    "Gaussian process": gaussian_process,
}
_LEAST_SPREAD = 1e-9
"""Standard deviation of a figure over its size, below which it is the same for all designs"""


@dataclass(frozen=True)
class FigureScore:
    """How well a regression predicts one figure of the cases of a split."""

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
    """Predict every figure of a split's cases from the training cases, by each regression.

    Figures that a case lacks, or that do not vary over the training cases, are left out.
    InputError where there are no design parameters, or too few cases.
    """
    train, cases = dataset.cases("train"), dataset.cases(split)
    if not dataset.schema.parameters:
        raise InputError(f"{dataset.url} has no design parameters to regress figures on")
    if len(train) < 2 or len(cases) < 2:
        raise InputError(
            f"{dataset.url} {dataset.version} has {len(train)} training and {len(cases)} {split}"
            " cases, two each are needed; generate more cases"
        )
    names, known, truth = _figures(dataset, train, cases)
    if not names:
        return []
    scores = []
    for regression, fit in REGRESSIONS.items():
        for column, name in enumerate(names):
            values = known[:, column : column + 1]
            predict = fit(scaled_designs(dataset, train), values)
            predicted = predict(scaled_designs(dataset, cases))[:, 0]
            r2, nmae = _figure_errors(predicted, truth[:, column])
            scores.append(FigureScore(name, regression, r2, nmae, len(train), len(cases)))
    return scores


def _figures(
    dataset: Dataset, train: Sequence[str], cases: Sequence[str]
) -> tuple[list[str], np.ndarray, np.ndarray]:
    """Return names, and values of the training cases and of the others, (cases, figures)."""
    stored = {case: dataset[case].provenance.get("figures", {}) for case in (*train, *cases)}
    shared = set.intersection(*(set(each) for each in stored.values()))
    tables = {
        name: np.array([stored[case][name] for case in (*train, *cases)], dtype=float)
        for name in sorted(shared)
    }
    kept = [
        name
        for name, values in tables.items()
        if np.isfinite(values).all()
        and values[: len(train)].std() > _LEAST_SPREAD * np.abs(values).max()
    ]
    values = np.stack([tables[name] for name in kept], axis=1) if kept else np.zeros((0, 0))
    return kept, values[: len(train)], values[len(train) :]


def fit_quantity(designs: np.ndarray, values: np.ndarray) -> GaussianProcess | None:
    """Fit values (n,) to scaled designs (n, P); NaN values are left out.

    None where too few are left, where there are no parameters, or all values are the same.
    """
    usable = np.isfinite(values)
    known = values[usable]
    if usable.sum() < designs.shape[1] + 2 or not designs.shape[1] or not known.std():
        return None
    return gaussian_process(designs[usable], known[:, None])


def scaled_designs(dataset: Dataset, cases: Sequence[str]) -> np.ndarray:
    """Return (cases, P) design parameters, each scaled to -1..1 over its range."""
    parameters = dataset.schema.parameters
    return np.array([scaled(parameters, dataset[case].parameters) for case in cases])


def _figure_errors(predicted: np.ndarray, truth: np.ndarray) -> tuple[float, float]:
    wrong = predicted - truth
    spread = ((truth - truth.mean()) ** 2).sum()
    r2 = 1 - (wrong**2).sum() / spread if spread else float("nan")
    size = np.abs(truth).sum()
    return float(r2), float(np.abs(wrong).sum() / size) if size else float("nan")


Pair = tuple[dict[str, float], dict[str, float]]
"""Quantities by name, of the solved and of the predicted fields of a case"""
LEAST_CASES = 3
"""For a rank correlation"""


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
    """Compute a case's quantities from its solved and from its predicted fields.

    Both are empty where the dataset's cases have no quantities. A transient case is rolled out to
    its end.
    """
    family = family_of(dataset)
    if family is None:
        return {}, {}
    wanted, _ = obtainable(family.quantities, surrogate.channels)
    truth = _of_solution(surrogate, family, wanted, case)
    return truth, of_prediction(surrogate, family, wanted, case)


def score_quantities(
    surrogate: Surrogate, dataset: Dataset, pairs: Mapping[str, Pair], train: Sequence[str]
) -> dict[str, QuantityScore]:
    """Score the quantities of cases by id, beside a null that is fitted to the cases `train`."""
    family = family_of(dataset)
    if family is None:
        return {}
    wanted, _ = obtainable(family.quantities, surrogate.channels)
    return {each.name: _score(each, dataset, pairs, train) for each in wanted}


def family_of(dataset: Dataset) -> CaseFamily | None:
    """Return the family whose quantities a dataset's cases have; None where there are none.

    Cases of another source, or without a boundary cloud, have no quantities of a family.
    """
    schema = dataset.schema
    if schema.source is not None or not schema.boundary:
        return None
    return family_with_quantities(schema.family)


def _of_solution(
    surrogate: Surrogate, family: CaseFamily, wanted: Sequence[Quantity], case: StoredCase
) -> dict[str, float]:
    """Compute quantities from a case's solved fields, at the times that the model predicts."""
    _, _, times = _rollout(surrogate, case)
    solved = _on_cloud(case, _solved(case, wanted, times), times)
    return quantities_from(wanted, solved, family.settled_from_s(case.settings))


def of_prediction(
    surrogate: Surrogate, family: CaseFamily, wanted: Sequence[Quantity], case: StoredCase
) -> dict[str, float]:
    """Compute quantities from a case's predicted fields; NaN where these are not finite."""
    start, steps, times = _rollout(surrogate, case)
    try:
        values = surrogate.predict_case(case, start_s=start, steps=steps)
    except NotFiniteError:
        # A rollout over many more steps than it was trained on may leave the finite numbers.
        return dict.fromkeys((each.name for each in wanted), math.nan)
    fields = by_field(values, surrogate.normaliser.channels)
    since_s = family.settled_from_s(case.settings)
    return quantities_from(wanted, _on_cloud(case, fields, times), since_s)


def _rollout(
    surrogate: Surrogate, case: StoredCase
) -> tuple[float | None, int | None, np.ndarray | None]:
    """Return start, steps and times of the prediction of a whole case; None where it is steady."""
    problem = surrogate.problem
    start = problem.start(case)
    steps = problem.steps_to_end(case, start)
    return start, steps, None if start is None else surrogate.times(start, steps)


def _on_cloud(
    case: StoredCase, fields: Mapping[str, np.ndarray], times: np.ndarray | None
) -> CaseFields:
    faces, kinds = case.boundary, tuple(case.patch_kinds)
    boundary = BoundaryCloud(faces.points, faces.normals, faces.areas, faces.patch)
    cloud = PointCloud(case.points, None, None, None, kinds, times, fields, boundary)
    return CaseFields(case.parameters, case.settings, cloud)


def _solved(
    case: StoredCase, wanted: Sequence[Quantity], times: np.ndarray | None
) -> dict[str, np.ndarray]:
    """Read the fields that quantities need, whole or at the stored times nearest to `times`."""
    names = {component.rpartition(".")[0] for each in wanted for component in each.needs}
    stored = case.read(*sorted(names)) if names else {}
    if times is None:
        return stored
    frames = [int(np.abs(np.asarray(case.time) - time).argmin()) for time in times]
    return {name: values[frames] for name, values in stored.items()}


def _score(
    quantity: Quantity, dataset: Dataset, pairs: Mapping[str, Pair], train: Sequence[str]
) -> QuantityScore:
    truth = np.array([of_truth[quantity.name] for of_truth, _ in pairs.values()])
    predicted = np.array([of_model[quantity.name] for _, of_model in pairs.values()])
    null_truth, null = _null(dataset, quantity.name, train, list(pairs))
    null_error, null_rank = _errors(null, null_truth)
    error, rank = _errors(predicted, truth)
    return QuantityScore(
        unit=quantity.unit,
        meaning=quantity.meaning,
        truth=_named(pairs, truth),
        predicted=_named(pairs, predicted),
        null=_named(pairs, null) if np.isfinite(null).any() else {},
        error=error,
        rank_correlation=rank,
        null_error=null_error,
        null_rank_correlation=null_rank,
    )


def _null(
    dataset: Dataset, name: str, train: Sequence[str], cases: Sequence[str]
) -> tuple[np.ndarray, np.ndarray]:
    """Return what the cases have on record, and the regression on the training cases of it."""
    known, truth = recorded(dataset, name, train), recorded(dataset, name, cases)
    predict = fit_quantity(scaled_designs(dataset, train), known)
    if predict is None:
        return truth, np.full(len(cases), math.nan)
    return truth, predict(scaled_designs(dataset, cases))[:, 0]


def recorded(dataset: Dataset, name: str, cases: Sequence[str]) -> np.ndarray:
    """Return a quantity as the solver measured it, (cases,); NaN where it is not on record.

    In versions of older releases it is in the cases' provenance alone.
    """
    if any(each.name == name for each in dataset.schema.quantities):
        return dataset.design.loc[list(cases), name].to_numpy(float)
    return np.array(
        [float(dataset[case].provenance.get("figures", {}).get(name, "nan")) for case in cases]
    )


def _errors(predicted: np.ndarray, truth: np.ndarray) -> tuple[float | None, float | None]:
    """Return the relative error and the rank correlation, over the cases whose truth is known.

    Both are None where one of these has no prediction: the cases on which a model fails are the
    hard ones, and an error over the others would flatter it.
    """
    known = np.isfinite(truth)
    if not np.isfinite(predicted[known]).all():
        return None, None
    size = np.abs(truth[known]).sum()
    error = float(np.abs(predicted - truth)[known].sum() / size) if size else None
    return error, _rank_correlation(predicted[known], truth[known])


def _rank_correlation(one: np.ndarray, other: np.ndarray) -> float | None:
    if len(one) < LEAST_CASES or not np.ptp(one) or not np.ptp(other):
        return None
    from scipy.stats import spearmanr  # half a second, which only an evaluation needs

    return float(spearmanr(one, other).statistic)


def _named(cases: Mapping[str, Any], values: np.ndarray) -> dict[str, float | None]:
    return {
        case: float(value) if np.isfinite(value) else None
        for case, value in zip(cases, values, strict=True)
    }


DESIGNS = 12
"""Predicted for each parameter, at most"""


@dataclass(frozen=True)
class Dependence:
    """The indices of one quantity; None where the designs do not tell them."""

    solved: Sensitivity | None
    predicted: Sensitivity | None


def dependences(surrogate: Surrogate, dataset: Dataset) -> dict[str, Dependence]:
    """Return the indices of each quantity that the model predicts; empty with too few designs."""
    family, parameters = family_of(dataset), dataset.schema.parameters
    ids = dataset.cases()
    if family is None or not parameters or len(ids) < LEAST_DESIGNS * len(parameters):
        return {}
    wanted, _ = obtainable(family.quantities, surrogate.channels)
    number = min(len(ids), DESIGNS * len(parameters))
    chosen = sorted(np.random.default_rng(0).permutation(len(ids))[:number].tolist())
    predicted = [of_prediction(surrogate, family, wanted, dataset[ids[place]]) for place in chosen]
    designs = [dataset[case].parameters for case in ids]
    return {
        each.name: Dependence(
            sobol_indices(parameters, designs, recorded(dataset, each.name, ids)),
            sobol_indices(
                parameters,
                [designs[place] for place in chosen],
                [of_case[each.name] for of_case in predicted],
            ),
        )
        for each in wanted
    }
