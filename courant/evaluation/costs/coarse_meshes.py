"""Measure what coarser meshes of the solver would have predicted, on the cases of a split.

    courant generate branched-pipe --designs STORE/branched-pipe --set mesh_size=7 --store coarse
    courant generate branched-pipe --designs STORE/branched-pipe --set mesh_size=10 --store coarse

A coarser solution is carried to the points of the dataset's mesh and measured there as a model's
prediction is. What carrying adds is part of its error, as it is for whoever uses such a mesh.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np
from scipy.interpolate import RBFInterpolator

from courant.evaluation.costs.same_error import (
    RECORD,
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
TIME_DIGITS = 6


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
    sums = ErrorSums([channel.name for channel in problem.normaliser.channels])
    seconds = []
    for fine, coarse in pairs:
        windows = list(problem.windows(fine))
        moments = [_moments(problem, window) for window in windows]
        states = _carried(problem, fine, coarse, {moment for of in moments for moment in of})
        for window, of in zip(windows, moments, strict=True):
            sums.add(np.stack([states[moment] for moment in of]), window.truth)
        took, share = core_seconds(coarse.provenance, ("solve",)), problem.share_of_solve(coarse)
        seconds.append((took or 0.0) * (share or 0.0))
    if not all(seconds):
        raise InputError(f"the cases on a mesh of {size:g} have no solving time on record")
    total = sums.total(ALL)
    return CoarseMesh(
        size=size,
        num_cases=len(pairs),
        nmae=total["nmae"],
        relative_l2=total["relative_l2"],
        solve_s=float(np.mean(seconds)),
    )


def _moments(problem: Problem, window: Window) -> list[float | None]:
    """Return the times of a window's truth; those of two windows are the same to the last bit."""
    if window.start_s is None:
        return [None]
    times = problem.times(window.start_s, problem.num_steps)
    return [] if times is None else np.round(times, TIME_DIGITS).tolist()


def _carried(
    problem: Problem, fine: StoredCase, coarse: StoredCase, moments: Collection[float | None]
) -> dict[float | None, np.ndarray]:
    """Return the coarse states at the fine points, (N, C) for each time.

    All at once: the work is in the geometry, which is the same for all of them.
    """
    solved = {}
    for moment in moments:
        state = problem.solution(coarse, moment)
        if state is None:
            raise InputError(f"case {coarse.id} has no state at {moment:g} s")
        solved[moment] = state
    axes = slice(0, problem.normaliser.dimension)
    source, target = (np.asarray(each.points, float)[:, axes] for each in (coarse, fine))
    neighbours = min(NUM_NEIGHBOURS, len(source))
    values = np.stack(list(solved.values()), axis=1)
    # Differences of radii and a constant: never singular, whatever the cells' arrangement.
    carry = RBFInterpolator(
        source, values.reshape(len(source), -1), neighbors=neighbours, kernel="linear", degree=0
    )
    there = carry(target).reshape(len(target), *values.shape[1:])
    return {moment: there[:, number] for number, moment in enumerate(solved)}
