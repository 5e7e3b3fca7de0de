"""Measure how well predicted fields tell the quantities of interest that a family declares.

Truth and prediction are computed in the same way, from fields on the stored cloud, so that they
differ by the fields alone. A transient case is rolled out from where training windows begin to its
end; its quantities are those of the times from which the family takes them.

The null is a Gaussian process on the design parameters, fitted to the quantities that the training
cases have on record. It needs no field: a model that tells a quantity less well has learned nothing
of use about it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from courant.evaluation.evaluation import QuantityScore
from courant.evaluation.null_model import fit_quantity, scaled_designs
from courant.prediction.design import by_field, family_with_quantities, quantities_from
from courant.prediction.surrogate import NotFiniteError, Surrogate
from simgen.case import CaseFamily
from simgen.point_cloud import BoundaryCloud, PointCloud
from simgen.quantities import CaseFields, Quantity, obtainable
from simgen.store.read import Dataset, StoredCase

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
