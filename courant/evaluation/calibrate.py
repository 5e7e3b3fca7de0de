"""Calibrate a run: measure its errors on cases that nothing else has seen.

The cases of the calibration split are predicted; their errors are kept in the run (`bands.json`),
and `courant.prediction.bands` makes bands of them. Where in a field errors are large is learned
from the validation split, so that calibration cases are used for nothing but the width. The error
of the solver's mesh comes from a dataset of the same designs on several meshes.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import numpy as np

from courant.evaluation import quantities
from courant.evaluation.metrics import finite_or_none
from courant.prediction import bands
from courant.prediction.bands import LEVEL, MOST_CASES, Bands, GridError, Predicted
from courant.prediction.surrogate import Surrogate, load
from courant.runs.directory import RunDirectory
from courant.runs.weights import weights_digest
from simgen.errors import InputError
from simgen.store.read import Dataset, StoredCase, open_dataset

WINDOWS = 4  # rollouts of a transient case that are compared, spread over it
MAX_CASES = 200  # validation and training cases that are predicted, at most
MESH_SIZE = "mesh_size"  # every family's setting for the size of its cells


def calibrate(
    run_url: str,
    dataset_url: str | None = None,
    grid_url: str | None = None,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> Bands:
    """Predict the calibration cases, keep their errors in the run, and return them.

    `dataset_url` is where the dataset of the training lies by now, whose newest version is taken;
    `grid_url` names one of the same designs on meshes of several sizes. InputError where there are
    too few calibration cases, no validation case, or the grids give no error.
    """
    run = RunDirectory(run_url)
    run.check_writable()
    surrogate = load(run_url)
    dataset, trained_on = newest(surrogate, dataset_url), surrogate.open_dataset(dataset_url)
    grid: dict[str, GridError] = {}
    no_grid: dict[str, str] = {}
    if grid_url is not None:
        grid, no_grid = grid_errors(open_dataset(grid_url), surrogate.dataset["settings"])
    cases = dataset.cases("calibration")[:MOST_CASES]
    if len(cases) < bands.least_cases(LEVEL):
        more = f"courant generate {dataset.schema.family} --split calibration --sampler uniform"
        if dataset.schema.source is not None:
            more = "import more solved cases, with the split calibration in the table --parameters"
        raise InputError(
            f"{dataset.url} {dataset.version} has {len(cases)} calibration cases, bands of"
            f" {LEVEL:.0%} need {bands.least_cases(LEVEL)}, and some 50 to be narrow: {more}"
        )
    check_settings(dataset, cases, trained_on)
    validation = dataset.required("validation")[:MAX_CASES]
    # Cases that were added since have taught the model nothing.
    train = trained_on.cases("train")
    rollout = _shared_rollout(surrogate, dataset, cases)
    done, total = 0, len(validation) + len(train[:MAX_CASES]) + len(cases)

    def read(ids: Sequence[str]) -> Iterator[StoredCase]:
        nonlocal done
        for case in ids:
            progress(done, total)
            yield dataset[case]
            done += 1

    scale = bands.fit_scale([next(_predictions(surrogate, case, 1)) for case in read(validation)])
    latents = [each for case in read(train[:MAX_CASES]) for each in _latents(surrogate, case)]
    largest, distances = [], []
    pairs: dict[str, quantities.Pair] = {}
    reach = bands.fit_reach(latents)
    for case in read(cases):
        over = [
            float((one.errors / scale.at(one.points, one.values)).max())
            for one in _predictions(surrogate, case, WINDOWS)
        ]
        largest.append(max(over))
        pairs[case.id] = quantities.solved_and_predicted(surrogate, dataset, case)
        if reach is not None:
            distances.append(max(map(reach.distance, _latents(surrogate, case))))
    if reach is not None:
        # All but a few calibration cases are within; latents that are all alike have no end.
        quantile = bands.conformal_quantile(np.array(distances), bands.REACH)
        limit = max(min(quantile, max(distances)), reach.limit)
        reach = reach.model_copy(update={"limit": limit})
    designs = quantities.scaled_designs(dataset, cases)
    answers, predicted = quantities.ensure_answers(surrogate, trained_on), pairs[cases[0]][1]
    named = dict.fromkeys([*answers.quantities, *predicted])

    def known(values: Iterable[float]) -> tuple[float | None, ...]:
        return tuple(map(finite_or_none, values))

    found = Bands(
        weights=surrogate.weights,
        version=dataset.version,
        cases=tuple(cases),
        designs=designs.tolist(),
        solved={name: known(quantities.true_values(dataset, name, pairs)) for name in named},
        of_fields={name: known([of[name] for _, of in pairs.values()]) for name in predicted},
        rollout=rollout,
        field=bands.FieldErrors(scale=scale, largest=tuple(largest)),
        reach=reach,
        ranges=bands.shared_ranges(quantities.scaled_designs(trained_on, train), designs),
        grid=grid,
        no_grid=no_grid,
    )
    if weights_digest(run) != surrogate.weights:
        raise InputError(
            f"{run.url} was trained further meanwhile: calibrate it again when its training ends"
        )
    surrogate.keep(found)
    quantities.score_again(surrogate, trained_on)
    return found


def newest(surrogate: Surrogate, dataset_url: str | None = None) -> Dataset:
    """Open the newest version of the training's dataset; InputError for another dataset."""
    return open_dataset(surrogate.open_dataset(dataset_url).url)


def _predictions(surrogate: Surrogate, case: StoredCase, most: int) -> Iterator[Predicted]:
    """Yield predictions of a case in normalised units: of a transient one `most` windows."""
    windows = list(surrogate.problem.windows(case))
    ends = (0, len(windows) - 1) if most > 1 else (len(windows) // 2,) * 2
    normaliser = surrogate.normaliser.at(case.parameters)
    for number in np.unique(np.linspace(*ends, most).round().astype(int)):
        start, truth = windows[number].start_s, windows[number].truth
        values = surrogate.predict_case(case, start_s=start).reshape(truth.shape)
        errors = np.abs(values - truth) / np.asarray(normaliser.std)
        yield Predicted(np.asarray(case.points), normaliser.standardise(values), errors)


def _latents(surrogate: Surrogate, case: StoredCase) -> list[np.ndarray]:
    """Return pooled latents at some starts of a case; empty for a model without latents."""
    starts: list[float | None] = [None]
    if surrogate.step_s is not None:
        times = np.asarray(case.time)
        usable = times[times >= (surrogate.problem.start(case) or 0.0)]
        starts = usable[np.linspace(0, len(usable) - 1, WINDOWS).round().astype(int)].tolist()
    found = [surrogate.pooled_latents(surrogate.prepare_case(case, start)) for start in starts]
    return [latents for latents in found if latents is not None]


def _shared_rollout(
    surrogate: Surrogate, dataset: Dataset, cases: Sequence[str]
) -> bands.CalibratedRollout | None:
    """Return the rollout that predicts all cases' quantities; InputError for several lengths."""
    problem, lengths = surrogate.problem, {}
    for case in cases:
        start = problem.start(dataset[case])
        lengths[case] = steps = problem.steps_to_end(dataset[case], start)
        if steps != lengths[cases[0]]:
            raise InputError(
                f"{dataset.url}: the rollout to the end of case {cases[0]} has"
                f" {lengths[cases[0]]} steps, that of {case} {steps}; calibrate with cases that end"
                " at one time"
            )
    start, steps = problem.start(dataset[cases[0]]), lengths[cases[0]]
    if start is None or steps is None:
        return None
    return bands.CalibratedRollout(start_s=start, steps=steps)


def check_settings(dataset: Dataset, cases: Sequence[str], trained_on: Dataset) -> None:
    """Raise InputError for a case with other solver settings than the training cases'."""
    known = [trained_on.records[case]["settings"] for case in trained_on.cases("train")]
    for case in cases:
        settings = dataset.records[case]["settings"]
        if settings in known:
            continue
        usual = known[0] if known else {}
        names = (each for each in {**usual, **settings} if usual.get(each) != settings.get(each))
        name = next(names, "")
        raise InputError(
            f"{dataset.url} {dataset.version}: case {case} was solved with {name} ="
            f" {settings.get(name, 'none')}, the training's cases with {usual.get(name, 'none')}:"
            " its error would be that of another mesh or solver too; generate such cases with the"
            " --preset and --set of the training's"
        )


def grid_errors(
    dataset: Dataset, settings: Mapping[str, float]
) -> tuple[dict[str, GridError], dict[str, str]]:
    """Return the mesh's error in each quantity, or the reason why it has none.

    It is that at the mesh size of the settings; designs that were not accepted on every mesh are
    left out. InputError where cases differ in other settings, none has that size, or nothing has
    an error.
    """
    place, here = f"{dataset.url} {dataset.version}", settings.get(MESH_SIZE)
    by_design: dict[tuple[float, ...], dict[float, str]] = {}
    for case in dataset:
        if {**case.settings, MESH_SIZE: here} != {**settings, MESH_SIZE: here}:
            raise InputError(
                f"{place}: case {case.id} differs from the training's cases in other settings than"
                f" {MESH_SIZE}; a study of the mesh changes that alone"
            )
        sizes = by_design.setdefault(tuple(case.parameters.values()), {})
        sizes[case.settings.get(MESH_SIZE, 0.0)] = case.id
    everywhere = sorted({size for sizes in by_design.values() for size in sizes})
    if here is None or here not in everywhere:
        raise InputError(f"{place} has no case of the training's {MESH_SIZE}, {here}")
    complete = [each for each in by_design.values() if len(each) == len(everywhere)]
    found: dict[str, GridError] = {}
    without: dict[str, str] = {}
    for quantity in dataset.schema.quantities:
        table = dataset.design[quantity.name]
        rows = [[float(table[sizes[size]]) for size in everywhere] for sizes in complete]
        values = np.array(rows).reshape(-1, len(everywhere))
        usable = np.isfinite(values).all(axis=1)
        try:
            found[quantity.name] = bands.fit_grid_error(np.array(everywhere), values[usable], here)
        except InputError as error:
            without[quantity.name] = str(error)
    if not found:
        first = next(iter(without.values()), "the dataset has no quantities")
        raise InputError(f"{place} gives no error of the mesh: {first}")
    return found, without
