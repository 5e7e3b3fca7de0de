"""Read what the solver's mesh adds to the quantities, from a dataset of designs on several meshes.

courant generate branched-pipe --cases 5 --set mesh_size=7 --store grids    # as the dataset's
courant generate branched-pipe --cases 5 --set mesh_size=5 --store grids
courant generate branched-pipe --cases 5 --set mesh_size=3.5 --store grids
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np

from courant.evaluation.quantities import (
    family_of,
    fit_quantity,
    recorded,
    scaled_designs,
    solved_and_predicted,
)
from courant.prediction.bands import (
    LEVEL,
    MOST_CASES,
    MOST_DESIGNS,
    REACH,
    Bands,
    FieldErrors,
    FieldScale,
    GridError,
    Outcomes,
    Predicted,
    Regressed,
    RegressedQuantity,
    Span,
    conformal_quantile,
    ending_at,
    fit_grid_error,
    fit_reach,
    fit_scale,
    least_cases,
    pooled_latents,
    scaled_design,
    shared_ranges,
)
from courant.prediction.surrogate import Surrogate, load
from courant.runs.directory import RunDirectory
from courant.runs.record import BANDS
from courant.runs.weights import weights_digest
from simgen.design_space import scaled
from simgen.errors import InputError
from simgen.store.read import Dataset, StoredCase, open_dataset

#: Every family's setting for the size of its cells.
MESH_SIZE = "mesh_size"


def grid_errors(
    dataset: Dataset, settings: Mapping[str, float]
) -> tuple[dict[str, GridError], dict[str, str]]:
    """Return the mesh's error in each quantity, at the mesh size of the settings.

    Also, for each quantity whose error cannot be told, the reason. Designs that were not accepted
    on every mesh are left out. InputError where cases differ in other settings than the mesh size,
    where none has that of `settings`, and where no quantity tells anything.
    """
    place = f"{dataset.url} {dataset.version}"
    here = settings.get(MESH_SIZE)
    by_design: dict[tuple[float, ...], dict[float, str]] = {}
    for case in dataset:
        if without_size(case.settings) != without_size(settings):
            raise InputError(
                f"{place}: case {case.id} differs from the training's cases in other settings than"
                f" {MESH_SIZE}; a study of the mesh changes that alone"
            )
        sizes = by_design.setdefault(tuple(case.parameters.values()), {})
        sizes[case.settings.get(MESH_SIZE, 0.0)] = case.id
    everywhere = sorted({size for sizes in by_design.values() for size in sizes})
    if here is None or here not in everywhere:
        raise InputError(f"{place} has no case of the training's {MESH_SIZE}, {here}")
    complete = [
        [sizes[size] for size in everywhere]
        for sizes in by_design.values()
        if len(sizes) == len(everywhere)
    ]
    found: dict[str, GridError] = {}
    refused: dict[str, str] = {}
    for quantity in dataset.schema.quantities:
        table = dataset.design[quantity.name]
        values = np.array([[float(table[case]) for case in cases] for cases in complete])
        usable = np.isfinite(values).all(axis=1) if len(values) else np.zeros(0, bool)
        try:
            found[quantity.name] = fit_grid_error(np.array(everywhere), values[usable], here)
        except InputError as error:
            refused[quantity.name] = str(error)
    if not found:
        first = next(iter(refused.values()), "the dataset has no quantities")
        raise InputError(f"{place} tells no error of the mesh: {first}")
    return found, refused


def without_size(settings: Mapping[str, float]) -> dict[str, float]:
    """Return a case's settings but for the size of its cells."""
    return {name: value for name, value in settings.items() if name != MESH_SIZE}


def regress_quantities(
    trained_on: Dataset, dataset: Dataset, cases: Sequence[str]
) -> Regressed | None:
    """Fit every quantity on record to the training cases; its errors are those on `cases`.

    The fit is the null of an evaluation. The cases are of `dataset`, a later version of the same.
    None where no quantity varies, or the cases have none.
    """
    family = family_of(trained_on)
    train = trained_on.cases("train")[:MOST_DESIGNS]
    if family is None or not train or not trained_on.schema.parameters:
        return None
    designs, fresh = scaled_designs(trained_on, train), scaled_designs(dataset, cases)
    fits = {}
    for name in (each.name for each in family.quantities):
        known = recorded(trained_on, name, train)
        fit = fit_quantity(designs, known)
        if fit is not None:
            errors = np.abs(fit(fresh)[:, 0] - recorded(dataset, name, cases))
            fits[name] = RegressedQuantity(
                values=_finite(known), logs=tuple(fit.logs.tolist()), errors=_finite(errors)
            )
    if not fits:
        return None
    return Regressed(designs=tuple(map(tuple, designs.tolist())), quantities=fits)


def _finite(values: np.ndarray) -> tuple[float | None, ...]:
    return tuple(float(value) if np.isfinite(value) else None for value in values)


#: Rollouts of a transient case that are compared, spread over it.
WINDOWS = 4
#: Validation and training cases that are predicted, at most.
MAX_CASES = 200
MAX_OUTCOMES = 5_000

Told = Callable[[int, int], None]
"""Told how many cases are predicted, and of how many"""


def calibrate(
    run_url: str,
    dataset_url: str | None = None,
    grid_url: str | None = None,
    told: Told | None = None,
) -> Bands:
    """Predict the calibration cases, keep their errors in the run, and return them.

    `dataset_url` is where the dataset of the training lies by now; its newest version is taken,
    since calibration cases are usually added to it after training. `grid_url` names a dataset of
    the same designs on meshes of several sizes. InputError where there are too few calibration
    cases, no validation case to learn the scale of errors from, or the grids do not tell an error.
    """
    run = RunDirectory(run_url)
    run.check_writable()
    surrogate = load(run_url)
    dataset = newest(surrogate, dataset_url)
    grid, no_grid = (
        ({}, {})
        if grid_url is None
        else grid_errors(open_dataset(grid_url), surrogate.dataset["settings"])
    )
    cases = dataset.cases("calibration")[:MOST_CASES]
    if len(cases) < least_cases(LEVEL):
        raise InputError(
            f"{dataset.url} {dataset.version} has {len(cases)} calibration cases, bands of"
            f" {LEVEL:.0%} need {least_cases(LEVEL)}, and some 50 to be narrow: courant generate"
            f" {dataset.schema.family} --split calibration with --sampler uniform, another --seed"
            " and the settings of the dataset"
        )
    trained_on = surrogate.open_dataset(dataset_url)
    check_settings(dataset, cases, trained_on)
    validation = dataset.cases("validation")[:MAX_CASES]
    # Cases that were added since have taught the model nothing.
    train = trained_on.cases("train")[:MAX_CASES]
    if not validation:
        raise InputError(
            f"{dataset.url} {dataset.version} has no validation case to learn from where errors"
            " are large; generate more cases"
        )
    progress = _Progress(dataset, len(validation) + len(train) + len(cases), told)
    scale = _scale(surrogate, progress.cases(validation))
    known = [latent for case in progress.cases(train) for latent in _latents(surrogate, case)]
    largest, errors, distances = [], [], []
    reach = fit_reach(known)
    for case in progress.cases(cases):
        largest.append(_largest_over(scale, surrogate, case))
        errors.append(quantity_errors(surrogate, dataset, case))
        if reach is not None:
            distances.append(max(map(reach.distance, _latents(surrogate, case))))
    bands = Bands(
        weights=surrogate.weights,
        version=dataset.version,
        cases=tuple(cases),
        designs=tuple(_design(surrogate, dataset[case]) for case in cases),
        quantities={name: tuple(of[name] for of in errors) for name in errors[0]},
        span=_shared_span(surrogate, dataset, cases),
        field=FieldErrors(scale=scale, largest=tuple(largest)),
        reach=None if reach is None else ending_at(reach, _limit(distances)),
        ranges=shared_ranges(
            _designs(trained_on, trained_on.cases("train")), _designs(dataset, cases)
        ),
        outcomes=_outcomes(surrogate, dataset, trained_on),
        grid=grid,
        no_grid=no_grid,
        regressed=regress_quantities(trained_on, dataset, cases),
    )
    if weights_digest(run) != surrogate.weights:
        raise InputError(
            f"{run.url} was trained further meanwhile: calibrate it again when its training ends"
        )
    run.write_json(BANDS, bands.model_dump(mode="json"))
    return bands


def newest(surrogate: Surrogate, dataset_url: str | None = None) -> Dataset:
    """Open the newest version of the training's dataset; InputError for another dataset."""
    return open_dataset(surrogate.open_dataset(dataset_url).url)


class _Progress:
    """Count the cases that are predicted."""

    def __init__(self, dataset: Dataset, total: int, told: Told | None) -> None:
        self._dataset, self._done, self._total = dataset, 0, total
        self._told = told or (lambda done, total: None)

    def cases(self, ids: Sequence[str]) -> Iterator[StoredCase]:
        for case in ids:
            self._told(self._done, self._total)
            yield self._dataset[case]
            self._done += 1


def _scale(surrogate: Surrogate, cases: Iterator[StoredCase]) -> FieldScale:
    """Fit the scale to predictions of the validation cases, one window of each."""
    return fit_scale([next(predictions(surrogate, case, 1)) for case in cases])


def predictions(surrogate: Surrogate, case: StoredCase, most: int) -> Iterator[Predicted]:
    """Yield predictions of a case in normalised units: of a transient one `most` windows."""
    windows = list(surrogate.problem.windows(case))
    ends = (0, len(windows) - 1) if most > 1 else (len(windows) // 2,) * 2
    chosen = np.unique(np.linspace(*ends, most).round().astype(int))
    for window in (windows[number] for number in chosen):
        values = surrogate.predict_case(case, start_s=window.start_s).reshape(window.truth.shape)
        normaliser = surrogate.normaliser.at(case.parameters)
        errors = np.abs(values - window.truth) / np.asarray(normaliser.std)
        yield Predicted(np.asarray(case.points), normaliser.standardise(values), errors)


def _largest_over(scale: FieldScale, surrogate: Surrogate, case: StoredCase) -> float:
    return max(
        float((one.errors / scale.at(one.points, one.values)).max())
        for one in predictions(surrogate, case, WINDOWS)
    )


def quantity_errors(
    surrogate: Surrogate, dataset: Dataset, case: StoredCase
) -> dict[str, float | None]:
    """Return how far each predicted quantity of a case is off; None where that is not known.

    A transient case is rolled out to its end.
    """
    truth, predicted = solved_and_predicted(surrogate, dataset, case)
    return absolute_errors(truth, predicted)


def absolute_errors(
    truth: Mapping[str, float], predicted: Mapping[str, float]
) -> dict[str, float | None]:
    """Return |predicted - truth| by quantity; None where it is not finite."""
    errors = {name: abs(predicted[name] - truth[name]) for name in truth}
    return {name: error if np.isfinite(error) else None for name, error in errors.items()}


def _shared_span(surrogate: Surrogate, dataset: Dataset, cases: Sequence[str]) -> Span | None:
    """Return the rollout by which all cases' quantities are predicted; InputError for several."""
    span, *others = (_span(surrogate, dataset[case]) for case in cases)
    for case, other in zip(cases[1:], others, strict=True):
        if span is not None and other is not None and other.steps != span.steps:
            raise InputError(
                f"{dataset.url}: the rollout to the end of case {cases[0]} has {span.steps} steps,"
                f" that of {case} {other.steps}; calibrate with cases that end at one time"
            )
    return span


def _span(surrogate: Surrogate, case: StoredCase) -> Span | None:
    start = surrogate.problem.start(case)
    steps = surrogate.problem.steps_to_end(case, start)
    return None if start is None or steps is None else Span(start_s=start, steps=steps)


def _designs(dataset: Dataset, cases: Sequence[str]) -> np.ndarray:
    """Return scaled designs (cases, P) from the dataset's table: no case is opened."""
    parameters = dataset.schema.parameters
    names = [each.name for each in parameters]
    rows = dataset.design.loc[list(cases), names].to_numpy(float).tolist()
    return np.array([scaled(parameters, dict(zip(names, row, strict=True))) for row in rows])


def _limit(distances: Sequence[float]) -> float:
    """Return the distance within which all but a few calibration cases are."""
    return min(conformal_quantile(np.array(distances), REACH), max(distances))


def _latents(surrogate: Surrogate, case: StoredCase) -> list[np.ndarray]:
    """Return pooled latents at some starts of a case; empty for a model without latents."""
    starts: list[float | None] = [None]
    if surrogate.step_s is not None:
        times = np.asarray(case.time)
        usable = times[times >= (surrogate.problem.start(case) or 0.0)]
        starts = usable[np.linspace(0, len(usable) - 1, WINDOWS).round().astype(int)].tolist()
    found = [pooled_latents(surrogate, surrogate.prepare_case(case, start)) for start in starts]
    return [latent for latent in found if latent is not None]


def _design(surrogate: Surrogate, case: StoredCase) -> tuple[float, ...]:
    return tuple(scaled_design(surrogate, case.parameters).tolist())


def check_settings(dataset: Dataset, cases: Sequence[str], trained_on: Dataset) -> None:
    """Raise InputError for a case with solver settings that no training case has.

    Its errors would be those of another mesh or another solver as well.
    """
    known = _settings_of_training(trained_on)
    records = dataset.records
    for case in cases:
        settings = records[case]["settings"]
        if settings in known:
            continue
        usual = known[0] if known else {}
        name = next(
            (each for each in {**usual, **settings} if usual.get(each) != settings.get(each)), ""
        )
        raise InputError(
            f"{dataset.url} {dataset.version}: case {case} was solved with {name} ="
            f" {settings.get(name, 'none')}, the training's cases with {usual.get(name, 'none')}:"
            " its error would be that of another mesh or solver too; generate such cases with the"
            " --preset and --set of the training's"
        )


def _settings_of_training(trained_on: Dataset) -> list[dict[str, float]]:
    """Return the different solver settings of the training cases."""
    records, found = trained_on.records, []
    for case in trained_on.cases("train"):
        if records[case]["settings"] not in found:
            found.append(records[case]["settings"])
    return found


def _outcomes(surrogate: Surrogate, dataset: Dataset, trained_on: Dataset) -> Outcomes:
    """Return which of the dataset's designs were accepted, with settings that the training has.

    Withdrawn ones tell nothing.
    """
    known = _settings_of_training(trained_on)
    records = {
        case: record
        for case, record in dataset.records.items()
        if record["status"] != "withdrawn" and record["settings"] in known
    }
    chosen = list(records.values())[-MAX_OUTCOMES:]
    return Outcomes(
        designs=tuple(
            tuple(scaled_design(surrogate, record["parameters"]).tolist()) for record in chosen
        ),
        unsolved=tuple(record["status"] != "accepted" for record in chosen),
    )
