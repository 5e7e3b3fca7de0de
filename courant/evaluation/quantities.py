"""Fit and measure the answers for quantities of interest, beside the null: parameters alone.

The truth of an answer is what the solver measured, where that is on record. The quantities of
fields, solved and predicted, are computed in the same way, from fields on the stored cloud, so that
they differ by the fields alone. A transient case is rolled out to its end; its quantities are those
of the times from which the family takes them. The null is a Gaussian process on the design
parameters, fitted to the quantities that the training cases have on record.
"""

from collections.abc import Mapping, Sequence
from typing import Any, get_args

import numpy as np

from courant.evaluation.metrics import finite_or_none, ratio
from courant.evaluation.record import MOST_ALIKE, QuantityScore, Split, read_evaluation, record_of
from courant.prediction.answers import (
    MOST_DESIGNS,
    MOST_OUTCOMES,
    Answers,
    Outcomes,
    RegressedQuantity,
)
from courant.prediction.bands import quantity_bands
from courant.prediction.surrogate import (
    FieldsOfDesign,
    NotFiniteError,
    Surrogate,
    by_field,
    quantities_from,
)
from courant.runs.directory import RunDirectory
from simgen import regression
from simgen.design_space import scaled
from simgen.errors import InputError
from simgen.quantities import CaseFields, Quantity, obtainable
from simgen.store.read import Dataset, StoredCase

Pair = tuple[dict[str, float], dict[str, float]]  # of the solved and the predicted fields of a case
KnownPair = tuple[Mapping[str, float | None], Mapping[str, float | None]]  # as it is on record
LEAST_CASES = 5  # for a rank correlation: one order in six of three is right by chance


def recorded(dataset: Dataset, name: str, cases: Sequence[str]) -> np.ndarray:
    """Return a quantity as the solver measured it, (cases,); NaN where it is not on record."""
    if name not in dataset.design:
        return np.full(len(cases), np.nan)
    return dataset.design.loc[list(cases), name].to_numpy(float)


def true_values(dataset: Dataset, name: str, pairs: Mapping[str, KnownPair]) -> np.ndarray:
    """Return a quantity as the solver measured it, or of solved fields where none is on record."""
    values = recorded(dataset, name, list(pairs))
    if np.isfinite(values).any():
        return values
    return np.array([solved.get(name) for solved, _ in pairs.values()], dtype=float)


def scaled_designs(dataset: Dataset, cases: Sequence[str]) -> np.ndarray:
    """Return (cases, P) parameters from the dataset's table, scaled to -1..1 over their ranges."""
    parameters = dataset.schema.parameters
    names = [each.name for each in parameters]
    rows = dataset.design.loc[list(cases), names].to_numpy(float).tolist()
    designs = [scaled(parameters, dict(zip(names, row, strict=True))) for row in rows]
    return np.array(designs).reshape(len(cases), len(parameters))


def fit_quantity(designs: np.ndarray, values: np.ndarray) -> regression.GaussianProcess | None:
    """Fit values (n,) to scaled designs (n, P), those that are known; None for too few."""
    usable = np.isfinite(values)
    known = values[usable]
    if usable.sum() < designs.shape[1] + 2 or not designs.shape[1] or not known.std():
        return None
    return regression.gaussian_process(designs[usable], known[:, None])


FOLDS = 10
"""Of the cases that are left out of the regression; of fewer cases each is left out alone"""
MOST_VALIDATION = 200
SCATTER = 0.5  # over the median left-out error
LEAST_VALIDATION = 5  # Cases that give the fields a share; one or two would give it by chance


def left_out_scores(
    fit: regression.GaussianProcess, designs: np.ndarray, values: np.ndarray
) -> tuple[np.ndarray, float, np.ndarray]:
    """Return what a fit without each case gives there (n, 1), its scatter, and scores (n,).

    Lengths that are fitted to few cases can leave hardly any deviation; errors over that alone are
    of any size (the smoothed scores of Papadopoulos et al. 2011). A single case has none.
    """
    if len(values) < 2:
        return np.full(values.shape, np.nan), 0.0, np.empty(0)
    without, deviations = regression.left_out(designs, values, FOLDS)
    errors, sizes = np.abs(values - without), np.abs(without) if fit.by_logarithm else 1.0
    scatter = SCATTER * float(np.median(errors / sizes))
    return without, scatter, (errors / np.hypot(deviations, scatter * sizes))[:, 0]


def ensure_answers(surrogate: Surrogate, dataset: Dataset) -> Answers:
    """Return the run's answers, which are fitted and kept in the run if there are none."""
    if not surrogate.answers.weights:
        surrogate.keep(fit_answers(surrogate, dataset))
    return surrogate.answers


def fit_answers(
    surrogate: Surrogate, dataset: Dataset, shares: Mapping[str, float] | None = None
) -> Answers:
    """Regress the family's quantities on the training and validation designs of a version.

    The shares of the fields follow from predictions of the validation cases where none are given.
    """
    # Designs with other settings say nothing of these.
    settings = surrogate.dataset["settings"]
    alike = {name: of for name, of in dataset.records.items() if of["settings"] == settings}
    train, validation = (
        [case for case in dataset.cases(split) if case in alike]
        for split in ("train", "validation")
    )
    cases = [*train, *validation][-MOST_DESIGNS:]
    designs, found, predicted = scaled_designs(dataset, cases), {}, {}
    # The candidates of a search, noted as such, are not drawn like designs that are asked for.
    of = [dataset[case] for case in cases]
    drawn = [each.stated_split is None or "note" not in each.provenance for each in of]
    if shares is None and len(validation) >= LEAST_VALIDATION:
        for case in validation[-MOST_VALIDATION:]:
            predicted[case] = solved_and_predicted(surrogate, dataset, dataset[case])[1]
    for name in (each.name for each in dataset.computed):
        values = recorded(dataset, name, cases)
        if (fit := fit_quantity(designs, values)) is None:
            continue
        share, known = (shares or {}).get(name, 0.0), np.isfinite(values) & drawn
        truth = values[known, None]
        without, scatter, scores = left_out_scores(fit, designs[known], truth)
        if shares is None:
            left_out = np.full(len(cases), np.nan)
            left_out[known] = without[:, 0]
            of_fields = [predicted.get(case, {}).get(name, np.nan) for case in cases]
            share = share_of_fields(values, left_out, np.array(of_fields))
        found[name] = RegressedQuantity(
            values=tuple(map(finite_or_none, values)),
            logs=tuple(fit.logs.tolist()),
            share=share,
            scatter=scatter,
            scores=scores.tolist(),
        )
    return Answers(
        weights=surrogate.weights,
        version=dataset.version,
        designs=designs.tolist() if found else (),
        quantities=found,
        outcomes=outcomes_of(dataset, alike),
    )


def outcomes_of(dataset: Dataset, on_record: Mapping[str, Mapping[str, Any]]) -> Outcomes:
    """Return which designs on record were solved; InputError where all were withdrawn."""
    records = [each for each in on_record.values() if each["status"] != "withdrawn"]
    records = records[-MOST_OUTCOMES:]
    if not records:
        raise InputError(
            f"{dataset.url} {dataset.version} has no case left with the solver settings of the run:"
            " add such cases again, or train on this version"
        )
    parameters = dataset.schema.parameters
    designs = [tuple(scaled(parameters, each["parameters"]).tolist()) for each in records]
    unsolved = tuple(each["status"] != "accepted" for each in records)
    return Outcomes(designs=tuple(designs), unsolved=unsolved)


def share_of_fields(truth: np.ndarray, regressed: np.ndarray, of_fields: np.ndarray) -> float:
    """Return by which share of their difference fields (n,) best correct a regression (n,).

    By least squares over the cases that have all three; 0 where there are too few, and where
    shares from all other cases do not lessen the absolute error of each.
    """
    wrong, change = truth - regressed, of_fields - regressed
    known = np.isfinite(wrong) & np.isfinite(change)
    wrong, change = wrong[known], change[known]
    if len(wrong) < LEAST_VALIDATION or np.isfinite(of_fields).sum() < known.sum():
        return 0.0
    products, squares = wrong * change, change**2
    apart = (products.sum() - products) / np.maximum(squares.sum() - squares, 1e-300)
    if np.abs(wrong - np.clip(apart, 0, 1) * change).sum() >= np.abs(wrong).sum():
        return 0.0
    return float(np.clip(products.sum() / squares.sum(), 0, 1))


def measure_quantities(
    surrogate: Surrogate, dataset: Dataset, ids: Sequence[str], answers: Answers
) -> dict[str, Any]:
    """Return `quantities` and `not_predicted` of an `Evaluation`."""
    if not (asked := dataset.computed):
        return {}
    _, reasons = obtainable(asked, surrogate.channels)
    pairs = {id_: solved_and_predicted(surrogate, dataset, dataset[id_]) for id_ in ids}
    scores = score_quantities(answers, dataset, pairs, dataset.cases("train"))
    missing = {name: why for name, why in reasons.items() if name not in scores}
    return {"quantities": scores, "not_predicted": missing}


def score_again(surrogate: Surrogate, dataset: Dataset) -> None:
    """Score the answers of a run's evaluations as they are by now, such as after a calibration."""
    run = RunDirectory(surrogate.url)
    for split in get_args(Split):
        if (known := read_evaluation(run, split)) is None:
            continue
        of = known.quantities.items()
        pairs = {
            case: (
                {name: each.of_solved_fields.get(case) for name, each in of},
                {name: each.of_fields.get(case) for name, each in of},
            )
            for case in known.cases
        }
        scores = score_quantities(surrogate.answers, dataset, pairs, dataset.cases("train"))
        missing = {name: why for name, why in known.not_predicted.items() if name not in scores}
        changed = known.model_copy(update={"quantities": scores, "not_predicted": missing})
        run.write_json(record_of(split), changed.model_dump(mode="json"))


def solved_and_predicted(
    surrogate: Surrogate, dataset: Dataset, case: StoredCase, by: FieldsOfDesign | None = None
) -> Pair:
    """Compute a case's quantities of solved and of predicted fields; empty where it has none."""
    wanted, _ = obtainable(dataset.computed, surrogate.channels)
    if not wanted:
        return {}, {}
    times, predicted = _predict(surrogate, wanted, case, by)
    return of_solved(wanted, case, times), predicted


def of_solved(
    wanted: Sequence[Quantity], case: StoredCase, times: np.ndarray | None
) -> dict[str, float]:
    """Compute a case's quantities of its solved fields, at some times."""
    names = sorted({component.rpartition(".")[0] for each in wanted for component in each.needs})
    solved = case.read(*names) if names else {}
    if times is not None:
        frames = [int(np.abs(np.asarray(case.time) - time).argmin()) for time in times]
        solved = {name: values[frames] for name, values in solved.items()}
    return _compute(wanted, case, solved, times)


def _predict(
    surrogate: Surrogate, wanted: Sequence[Quantity], case: StoredCase, by: FieldsOfDesign | None
) -> tuple[np.ndarray | None, dict[str, float]]:
    """Return times and quantities of the prediction of a whole case; NaN where it is not finite."""
    problem = surrogate.problem
    start = problem.start(case)
    steps = problem.steps_to_end(case, start)
    times = None if start is None else surrogate.times(start, steps)
    try:
        if by is None:
            values = surrogate.predict_case(case, start_s=start, steps=steps)
        else:
            values = by(case.points, case.parameters, times)
    except NotFiniteError:
        # A rollout over many more steps than it was trained on may leave the finite numbers.
        return times, dict.fromkeys((each.name for each in wanted), np.nan)
    fields = by_field(values[0] if by and times is None else values, surrogate.normaliser.channels)
    return times, _compute(wanted, case, fields, times)


def _compute(
    wanted: Sequence[Quantity],
    case: StoredCase,
    fields: Mapping[str, np.ndarray],
    times: np.ndarray | None,
) -> dict[str, float]:
    """Compute quantities of fields on a case's cloud, from the settled state on."""
    of_case = CaseFields(case.parameters, case.settings, case.cloud(fields, times))
    family = case.dataset.family
    since_s = family.settled_from_s(case.settings) if family else 0.0
    return quantities_from(wanted, of_case, since_s)


def score_quantities(
    answers: Answers, dataset: Dataset, pairs: Mapping[str, KnownPair], train: Sequence[str]
) -> dict[str, QuantityScore]:
    """Score the quantities of cases by id, beside a null that is fitted to the cases `train`."""
    cases = list(pairs)
    designs, known_designs = scaled_designs(dataset, cases), scaled_designs(dataset, train)

    def column(name: str, of: int) -> np.ndarray:
        return np.array([pair[of].get(name) for pair in pairs.values()], dtype=float)

    def by_case(values: np.ndarray) -> dict[str, float | None]:
        return dict(zip(cases, map(finite_or_none, values.tolist()), strict=True))

    def over_mean(name: str, width: Any) -> float | None:
        return finite_or_none(float(width / (np.abs(answered[name]).mean() or np.nan)))

    names = dict.fromkeys(name for _, of_model in pairs.values() for name in of_model)
    answered = answers.at(designs, {name: column(name, 1) for name in names}, apart=True)
    around = [
        quantity_bands(answers, None, design, {n: float(of[k]) for n, of in answered.items()})
        for k, design in enumerate(designs)
    ]
    scores = {}
    for each in (one for one in dataset.computed if one.name in answered):
        truth = true_values(dataset, each.name, pairs)
        known = recorded(dataset, each.name, train)
        fit = fit_quantity(known_designs, known)
        widths = [of_case[each.name].half_width for of_case in around if each.name in of_case]
        null = np.full(len(cases), np.nan)
        if fit and not {*cases} & {*train}:  # whose values it knows
            null = fit(designs)[:, 0]
        error, rank = _error_and_rank(answered[each.name], truth)
        scores[each.name] = QuantityScore(
            unit=each.unit,
            meaning=each.described,
            source=answers.source(each.name),
            band=over_mean(each.name, np.median(widths)) if widths else None,
            spread=over_mean(each.name, np.nanstd(known)) if fit else None,
            truth=by_case(truth),
            predicted=by_case(answered[each.name]),
            null=by_case(null) if fit else {},
            error=error,
            rank_correlation=rank,
            fields_error=_error_and_rank(column(each.name, 1), column(each.name, 0))[0],
            of_fields=by_case(column(each.name, 1)),
            of_solved_fields=by_case(column(each.name, 0)),
            null_error=_error_and_rank(null, truth)[0],
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
    if len(truth) < LEAST_CASES or np.ptp(truth) <= 1e-9 * np.abs(truth).max():
        return error, None
    if np.ptp(predicted) <= MOST_ALIKE * np.ptp(truth):
        return error, None
    from scipy.stats import spearmanr  # half a second, which only an evaluation needs

    return error, float(spearmanr(predicted, truth).statistic)
