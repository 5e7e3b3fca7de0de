"""Measure what coarser meshes of the solver would have predicted, on the cases of a split.

    courant generate branched-pipe --designs STORE/branched-pipe --set mesh_size=7 --store coarse
    courant generate branched-pipe --designs STORE/branched-pipe --set mesh_size=10 --store coarse

A coarser solution is carried to the points of the dataset's mesh and measured there as a model's
prediction is. What carrying adds is part of its error, as it is for whoever uses such a mesh.

A transient prediction starts from the true state. On another mesh a wake begins to shed at another
time, so two solutions at the same time say nothing about accuracy. What stands for a coarse solver
that is started from the true state is its own trajectory, from its state that is nearest to it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from scipy.interpolate import RBFInterpolator

from courant.data.trajectories import read_states, time_tolerance
from courant.evaluation.costs.same_error import (
    RECORD,
    CoarseCase,
    CoarseMesh,
    CoarseMeshes,
    coarse_meshes_on_record,
    name_of,
)
from courant.evaluation.grid_study import MESH_SIZE, without_size
from courant.evaluation.metrics import ALL, ErrorSums
from courant.problems import Problem, Window
from courant.runs.directory import RunDirectory
from simgen.errors import InputError
from simgen.provenance import core_seconds
from simgen.store.access.reader import Dataset
from simgen.store.access.stored_case import StoredCase

NUM_NEIGHBOURS = 12
"""Cells of the coarse mesh that the value at a point is made from"""


def measure_coarse_meshes(
    folder: RunDirectory, problem: Problem, dataset: Dataset, split: str, coarse: Dataset
) -> CoarseMeshes:
    """Return the meshes' errors and times, from the record in the folder if it is of these data.

    InputError where the coarse dataset is of another family or other settings, and where it has no
    accepted case of a design of the split on a coarser mesh.
    """
    components = tuple(channel.name for channel in problem.normaliser.channels)
    known = coarse_meshes_on_record(folder, components, dataset, split, coarse)
    if known is not None:
        return known
    pairs = coarse_pairs(dataset, split, coarse)
    found = CoarseMeshes(
        snapshot=dataset.snapshot_id,
        split=split,
        coarse=name_of(coarse),
        components=components,
        reference_size=dataset[dataset.cases(split)[0]].settings[MESH_SIZE],
        num_designs=len(dataset.cases(split)),
        meshes=tuple(_measure(problem, size, pairs[size]) for size in sorted(pairs, reverse=True)),
    )
    folder.write_json(RECORD, found.model_dump(mode="json"))
    return found


def coarse_pairs(
    dataset: Dataset, split: str, coarse: Dataset
) -> dict[float, list[tuple[StoredCase, StoredCase]]]:
    """Return by mesh size the cases of the same design, as (the dataset's, the coarse one).

    Raises InputError as `measure_coarse_meshes` does.
    """
    if coarse.schema.family != dataset.schema.family:
        raise InputError(
            f"{coarse.url} holds {coarse.schema.family}, the dataset holds {dataset.schema.family}"
        )
    cases = map(dataset.__getitem__, dataset.cases(split))
    mine = {tuple(case.parameters.values()): case for case in cases}
    if not mine:
        raise InputError(
            f"{dataset.url} {dataset.version} has no {split} case; generate more cases"
        )
    settings = next(iter(mine.values())).settings
    here = settings.get(MESH_SIZE)
    if here is None:
        raise InputError(
            f"{dataset.url}: its cases have no setting {MESH_SIZE}; imported and generated"
            " benchmarks cannot be solved on coarser meshes here"
        )
    pairs: dict[float, list[tuple[StoredCase, StoredCase]]] = {}
    for case in coarse:
        if without_size(case.settings) != without_size(settings):
            raise InputError(
                f"{coarse.url} {coarse.version}: case {case.id} differs from the dataset's cases in"
                f" other settings than {MESH_SIZE}"
            )
        size, fine = case.settings[MESH_SIZE], mine.get(tuple(case.parameters.values()))
        if fine is not None and size > here:
            pairs.setdefault(size, []).append((fine, case))
    if not pairs:
        raise InputError(
            f"{coarse.url} {coarse.version} has no accepted case of these designs on a mesh coarser"
            f" than {here:g}; courant generate {dataset.schema.family} --designs {dataset.url}"
            f" --set {MESH_SIZE}={1.5 * here:g} --store OTHER solves them"
        )
    return pairs


def _measure(
    problem: Problem, size: float, pairs: Sequence[tuple[StoredCase, StoredCase]]
) -> CoarseMesh:
    names = [channel.name for channel in problem.normaliser.channels]
    sums, cases = ErrorSums(names), {}
    for fine, coarse in pairs:
        own = ErrorSums(names)
        for states, window in _predicted(problem, fine, coarse):
            own.add(states, window.truth)
        sums.merge(own)
        cases[fine.id] = _case(problem, fine, coarse, own.total(ALL)["nmae"])
    if any(each is None for each in cases.values()):
        raise InputError(f"the cases on a mesh of {size:g} have no solving time on record")
    total = sums.total(ALL)
    return CoarseMesh(
        size=size,
        nmae=total["nmae"],
        relative_l2=total["relative_l2"],
        cases={id_: each for id_, each in cases.items() if each is not None},
    )


def _case(problem: Problem, fine: StoredCase, coarse: StoredCase, nmae: float) -> CoarseCase | None:
    """Return None where one of the two has no time on record.

    Both are processor time, or both are wall time: a record of each cannot be compared.
    """
    both = [coarse.provenance, fine.provenance]
    if not all("solve" in each.get("cpu_time_s", {}) for each in both):
        both = [{**each, "cpu_time_s": {}} for each in both]
    took, reference = (core_seconds(each, ("solve",)) for each in both)
    share = problem.share_of_solve(coarse)
    if not took or not reference or not share:
        return None
    return CoarseCase(nmae=nmae, solve_s=took * share, reference_s=reference * share)


def _predicted(
    problem: Problem, fine: StoredCase, coarse: StoredCase
) -> Iterator[tuple[np.ndarray, Window]]:
    """Yield for each window of the fine case what the coarse solver gives there, (T, N, C)."""
    channels = problem.normaliser.channels
    if problem.step_s is None:
        solved = problem.solution(coarse, None)
        assert solved is not None
        (carried,) = _carried(problem, fine, coarse, solved[None])
        for window in problem.windows(fine):
            yield carried[None], window
        return
    began = problem.start(coarse)
    assert began is not None
    times = np.asarray(coarse.time, dtype=np.float64)
    first = int(np.searchsorted(times, began - time_tolerance(times)))
    times, states = times[first:], read_states(coarse, channels, slice(first, None))
    last = times[-1] - problem.num_steps * problem.step_s
    num_starts = int((times <= last + time_tolerance(times)).sum())
    if not num_starts:
        raise InputError(f"case {coarse.id} ends at {times[-1]:g} s: no window fits")
    carried = _carried(problem, fine, coarse, states)
    spread = np.maximum(carried.std(axis=(0, 1)), 1e-30)
    for window in problem.windows(fine):
        assert window.initial is not None
        away = np.square((carried[:num_starts] - window.initial) / spread).mean(axis=(1, 2))
        start = times[int(away.argmin())]
        after = problem.times(start, problem.num_steps)
        assert after is not None
        yield carried[[int(np.abs(times - moment).argmin()) for moment in after]], window


def _carried(
    problem: Problem, fine: StoredCase, coarse: StoredCase, states: np.ndarray
) -> np.ndarray:
    """Return coarse states (T, n, C) at the fine points, (T, N, C).

    All at once: the work is in the geometry, which is the same for all of them.
    """
    axes = slice(0, problem.normaliser.dimension)
    source, target = (np.asarray(each.points, float)[:, axes] for each in (coarse, fine))
    neighbours = min(NUM_NEIGHBOURS, len(source))
    values = np.moveaxis(states, 0, 1)
    # Differences of radii and a constant: never singular, whatever the cells' arrangement.
    carry = RBFInterpolator(
        source, values.reshape(len(source), -1), neighbors=neighbours, kernel="linear", degree=0
    )
    return np.moveaxis(carry(target).reshape(len(target), *values.shape[1:]), 1, 0)
