"""Measure the quantities of interest of predicted fields, beside the null: parameters alone.

Truth and prediction are computed in the same way, from fields on the stored cloud, so that they
differ by the fields alone. A transient case is rolled out to its end; its quantities are those of
the times from which the family takes them. The null is a Gaussian process on the design parameters,
fitted to the quantities that the training cases have on record.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from courant.evaluation.metrics import finite_or_none, ratio
from courant.evaluation.record import QuantityScore
from courant.prediction.surrogate import NotFiniteError, Surrogate, by_field, quantities_from
from simgen import regression
from simgen.case import CaseFamily
from simgen.cases import FAMILIES
from simgen.design_space import scaled
from simgen.point_cloud import BoundaryCloud, PointCloud
from simgen.quantities import CaseFields, Quantity, obtainable
from simgen.store.read import Dataset, StoredCase

Dependence = dict[str, regression.Sensitivity | None]  # of `solved` and `predicted` quantities
Pair = tuple[dict[str, float], dict[str, float]]  # of the solved and the predicted fields of a case
LEAST_CASES = 3  # for a rank correlation
DESIGNS = 12  # predicted for each parameter, at most, to measure dependences


def family_of(dataset: Dataset) -> CaseFamily | None:
    """Return the family whose quantities a dataset's cases have; None for cases without any."""
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


def fit_quantity(designs: np.ndarray, values: np.ndarray) -> regression.GaussianProcess | None:
    """Fit values (n,) to scaled designs (n, P), those that are known; None for too few."""
    usable = np.isfinite(values)
    known = values[usable]
    if usable.sum() < designs.shape[1] + 2 or not designs.shape[1] or not known.std():
        return None
    return regression.gaussian_process(designs[usable], known[:, None])


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
        return dict(zip(cases, map(finite_or_none, values.tolist()), strict=True))

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
    error = finite_or_none(float(ratio(np.abs(predicted - truth).sum(), np.abs(truth).sum())))
    if not np.isfinite(predicted).all():
        return None, None
    if len(truth) < LEAST_CASES or _is_constant(predicted) or _is_constant(truth):
        return error, None
    from scipy.stats import spearmanr  # half a second, which only an evaluation needs

    return error, float(spearmanr(predicted, truth).statistic)


def _is_constant(values: np.ndarray) -> bool:
    """Return whether values differ by no more than rounding: they have no order."""
    return bool(np.ptp(values) <= 1e-9 * np.abs(values).max())


def dependences(surrogate: Surrogate, dataset: Dataset) -> dict[str, Dependence]:
    """Return the dependence of each predicted quantity of which one is known; {} of few designs."""
    family, parameters = family_of(dataset), dataset.schema.parameters
    ids = dataset.cases()
    if family is None or not parameters or len(ids) < regression.LEAST_DESIGNS * len(parameters):
        return {}
    wanted, _ = obtainable(family.quantities, surrogate.channels)
    number = min(len(ids), DESIGNS * len(parameters))
    some = sorted(np.random.default_rng(0).permutation(len(ids))[:number].tolist())
    predicted = [_predict(surrogate, family, wanted, dataset[ids[place]])[1] for place in some]
    designs = [dataset[case].parameters for case in ids]

    def indices(of: list[dict[str, float]], values: Any) -> regression.Sensitivity | None:
        return regression.sobol_indices(parameters, of, values)

    found: dict[str, Dependence] = {
        each.name: {
            "solved": indices(designs, recorded(dataset, each.name, ids)),
            "predicted": indices(
                [designs[place] for place in some], [of[each.name] for of in predicted]
            ),
        }
        for each in wanted
    }
    return {name: each for name, each in found.items() if any(each.values())}
