"""Predict a design that nobody has solved: the family meshes it, the model predicts.

    found = surrogate.predict_design({"aperture": 30.0, ...})
    found.quantities["pressure_loss"], found.values, found.cloud.points, found.seconds.meshing

A transient model needs a state to start from: with `from_solver_s` the solver runs so many seconds
of the design, and the model goes on from there. With `verify` the solver solves all of it, and the
solution is beside the prediction.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.spatial import cKDTree

from courant.data.normalisation import Channel
from courant.prediction.bands import DesignBands, apply_bands
from courant.problems.problem import check_finite, tell_caller
from courant.problems.transient import time_tolerance
from simgen.case import CaseFamily, SolvedCase
from simgen.cases import FAMILIES, get_family
from simgen.design_space import DesignPoint
from simgen.errors import InputError
from simgen.point_cloud import PointCloud
from simgen.quantities import CaseFields, Quantity, compute, obtainable, states_from

if TYPE_CHECKING:
    from courant.data.batch import Batch
    from courant.prediction.surrogate import Surrogate
    from simgen.store.read import StoredCase


def family_with_quantities(name: str) -> CaseFamily | None:
    """Return the family, if this release knows it and it declares quantities."""
    family = FAMILIES.get(name)
    return family if family is not None and family.quantities else None


def quantities_from(
    quantities: Sequence[Quantity], fields: CaseFields, since_s: float
) -> dict[str, float]:
    """Compute quantities by name, of a transient case from its states from `since_s` on.

    NaN where there is no such state.
    """
    cloud = states_from(fields.cloud, since_s)
    if cloud.time is not None and not len(cloud.time):
        return dict.fromkeys((each.name for each in quantities), float("nan"))
    return compute(quantities, CaseFields(fields.parameters, fields.settings, cloud))


def by_field(values: np.ndarray, channels: Sequence[Channel]) -> dict[str, np.ndarray]:
    """Split (..., C) into fields (..., components); components that are not modelled are zero."""
    fields: dict[str, np.ndarray] = {}
    for name in dict.fromkeys(channel.field for channel in channels):
        columns = {each.column: c for c, each in enumerate(channels) if each.field == name}
        field = fields[name] = np.zeros((*values.shape[:-1], 1 + max(columns)), values.dtype)
        for column, place in columns.items():
            field[..., column] = values[..., place]
    return fields


def counted_from_s(surrogate: Surrogate, family: CaseFamily, times: np.ndarray | None) -> float:
    """Return the time from which states count in quantities.

    A rollout to the end of the dataset's cases is measured as these are, from the family's settled
    state on; of any other one all predicted states count.
    """
    settings, step_s = surrogate.dataset["settings"], surrogate.step_s
    if times is None or step_s is None:
        return 0.0
    to_the_end = times[-1] > settings[family.horizon] - step_s * (1 - 1e-6)
    return family.settled_from_s(settings) if to_the_end else 0.0


FROM_ANOTHER = "it starts from the state of another design"
"""Why no band holds"""


class TooLargeError(InputError):
    """A mesh with more cells than the caller allows."""


def default_folder() -> Path:
    """Return where known geometry is kept, in the user's cache."""
    cache = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(cache).expanduser() / "courant" / "geometry"


@dataclass(frozen=True)
class Seconds:
    """Wall time of each step; 0 where it was not needed."""

    meshing: float
    solving: float
    prediction: float


@dataclass(frozen=True)
class PredictedDesign:
    """A design with its predicted fields and quantities, in physical units."""

    point: DesignPoint
    cloud: PointCloud
    """Cells and boundary; without fields"""
    values: np.ndarray
    """(N, C) of a steady model, (T, N, C) of a transient one, in the model's channels"""
    times: np.ndarray | None
    """(T,) s"""
    quantities: Mapping[str, float]
    not_predicted: Mapping[str, str]
    """The family's other quantities, with the reason in words"""
    seconds: Seconds
    known_geometry: bool
    """Whether the mesh was kept from an earlier prediction"""
    prepared: Batch
    """What the model was given, for `Surrogate.decompose_prepared`"""
    bands: DesignBands | None = None
    """Bands of error; None where the run is not calibrated"""
    fine: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    """Where quantities would be on an infinitely fine mesh, but for the model's error; empty where
    the mesh was not studied, or no band holds
    """
    fine_by_regression: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    """The same of the values by regression"""
    solved: np.ndarray | None = None
    """The solver's values, like the predicted ones, where it solved the design"""
    solved_quantities: Mapping[str, float] | None = None
    warnings: tuple[str, ...] = ()
    """Where they were collected (`collected_warnings`) in place of being issued"""


@dataclass(frozen=True)
class _Start:
    """What is known of a design before the prediction."""

    cloud: PointCloud
    seconds: Seconds
    known_geometry: bool = False


def predict_design(
    surrogate: Surrogate,
    parameters: Mapping[str, float],
    *,
    steps: int | None = None,
    from_solver_s: float | None = None,
    verify: bool = False,
    folder: str | Path | None = None,
    scratch: str | Path | None = None,
    max_points: int | None = None,
    start_of: StoredCase | None = None,
) -> PredictedDesign:
    """Mesh and predict a design; see the module for the options.

    A transient model may also start from the state of another design, `start_of`, transferred to
    this mesh: the solver runs nothing, and no band of the model holds.

    `folder` keeps known geometry (None: ~/.cache/courant/geometry), `scratch` is where a case is
    solved (None: the system's temporary folder), and `max_points` bounds the cells of a
    mesh. Raises InputError for a design outside the family's design space, one that cannot be
    meshed or solved, and where a transient model has no start.
    """
    family = get_family(surrogate.dataset["family"])
    trained_on = surrogate.dataset.get("family_revision")
    if trained_on not in (None, family.revision):
        tell_caller(
            f"the model was trained on revision {trained_on} of {family.name}, this design is"
            f" meshed as revision {family.revision} does: generate the dataset anew and train on it"
        )
    settings = surrogate.dataset["settings"]
    point = family.point(parameters, settings)
    if surrogate.step_s is None:
        if from_solver_s is not None or steps is not None:
            raise InputError("a steady model starts from no state: leave out the start and steps")
        start = _solved(point, scratch) if verify else _meshed(point, folder, max_points)
        return _predicted(surrogate, family, point, start, None, None)
    if start_of is not None:
        start = _meshed(point, folder, max_points)
        cloud, begin = transferred_state(surrogate, start_of, start.cloud)
        start = replace(start, cloud=cloud)
        found = _predicted(surrogate, family, point, start, begin, surrogate.problem.steps(steps))
        return _without_bands(found, FROM_ANOTHER)
    if from_solver_s is None:
        raise InputError(
            "a transient model needs a state to start from: say how many seconds the solver runs"
            " before it (--from-solver, from_solver_s in Python)"
        )
    steps = surrogate.problem.steps(steps)
    if surrogate.problem.input_times(from_solver_s)[0] < 0:
        raise InputError(
            f"the model reads {surrogate.problem.input_steps} states {surrogate.step_s:g} s apart,"
            f" and the solver starts at 0 s: let it run for"
            f" {(surrogate.problem.input_steps - 1) * surrogate.step_s:g} s or longer"
        )
    end = from_solver_s + steps * surrogate.step_s if verify else from_solver_s
    point = family.point(parameters, {**settings, family.horizon: end})
    start = _solved(point, scratch)
    return _predicted(surrogate, family, point, start, from_solver_s, steps)


def _meshed(point: DesignPoint, folder: str | Path | None, max_points: int | None) -> _Start:
    from simgen.solving.unsolved import mesh_design

    began = time.perf_counter()
    cloud, known = mesh_design(point, default_folder() if folder is None else Path(folder))
    if max_points is not None and cloud.num_points > max_points:
        raise TooLargeError(
            f"the mesh of this design has {cloud.num_points} cells, {max_points} are allowed"
        )
    return _Start(cloud, Seconds(time.perf_counter() - began, 0.0, 0.0), known)


def _solved(point: DesignPoint, folder: str | Path | None) -> _Start:
    """Solve the design; InputError where it is rejected or fails."""
    from simgen.solving.convert import convert
    from simgen.solving.solve_case import solve_case

    if folder is not None:
        Path(folder).mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="design-", dir=folder) as scratch:
        result = solve_case(point, Path(scratch))
        if result.status != "accepted":
            raise InputError(f"the solver did not solve this design ({result.reason})")
        cloud = convert(SolvedCase(point, Path(scratch) / point.id))
    took = result.provenance["wall_time_s"]
    return _Start(cloud, Seconds(float(took["mesh"]), float(took["solve"]), 0.0))


def _predicted(
    surrogate: Surrogate,
    family: CaseFamily,
    point: DesignPoint,
    start: _Start,
    from_s: float | None,
    steps: int | None,
) -> PredictedDesign:
    began = time.perf_counter()
    prepared = surrogate.prepare(
        start.cloud.points, **_request(surrogate, point, start, from_s, steps)
    )
    values = check_finite(surrogate.predict_prepared([prepared])[0])
    took = time.perf_counter() - began
    bands = None
    if surrogate.bands is not None:
        bands = apply_bands(
            surrogate,
            surrogate.bands,
            prepared,
            values,
            points=start.cloud.points,
            parameters=point.parameters,
            start_s=from_s,
        )
    times = None if from_s is None else surrogate.times(from_s, steps)
    solved = solved_values(surrogate, start.cloud, times)
    declared = family.quantities if family_with_quantities(family.name) else ()
    wanted, reasons = obtainable(declared, surrogate.channels)

    def fields_of(of: np.ndarray) -> CaseFields:
        fields = by_field(of, surrogate.normaliser.channels)
        cloud = replace(start.cloud, time=times, fields=fields, boundary=_bare(start.cloud))
        return CaseFields(point.parameters, point.settings, cloud)

    def quantities(of: np.ndarray) -> dict[str, float]:
        return quantities_from(wanted, fields_of(of), counted_from_s(surrogate, family, times))

    predicted = quantities(values)
    # They were studied where quantities were calibrated.
    studied = surrogate.bands.grid if surrogate.bands else {}
    grid = studied if bands and not bands.no_quantities else {}
    regressed = {} if bands is None else bands.by_regression
    return PredictedDesign(
        point=point,
        cloud=replace(start.cloud, time=None, fields={}, boundary=_bare(start.cloud)),
        values=values,
        times=times,
        quantities=predicted,
        not_predicted=reasons,
        seconds=replace(start.seconds, prediction=took),
        known_geometry=start.known_geometry,
        prepared=prepared,
        bands=bands,
        fine={name: of.fine(predicted[name]) for name, of in grid.items() if name in predicted},
        fine_by_regression={
            name: of.fine(regressed[name][0]) for name, of in studied.items() if name in regressed
        },
        solved=solved,
        solved_quantities=None if solved is None else quantities(solved),
    )


def _without_bands(found: PredictedDesign, reason: str) -> PredictedDesign:
    """Withhold the model's bands; those by regression do not hang on the start."""
    if found.bands is None:
        return found
    bands = replace(found.bands, quantities={}, field=None, refusal=reason, no_quantities=reason)
    return replace(found, bands=bands, fine={})


def _bare(cloud: PointCloud) -> Any:
    """Return the boundary without fields."""
    return None if cloud.boundary is None else replace(cloud.boundary, fields={})


def _request(
    surrogate: Surrogate, point: DesignPoint, start: _Start, from_s: float | None, steps: int | None
) -> dict[str, Any]:
    """Return the arguments of `Surrogate.predict` besides the points."""
    cloud, normaliser = start.cloud, surrogate.normaliser
    asked: dict[str, Any] = {"parameters": point.parameters} if normaliser.parameters else {}
    if normaliser.stored_kinds:
        columns = [cloud.patch_kinds.index(kind) for kind in normaliser.stored_kinds]
        assert cloud.distance is not None and cloud.direction is not None
        asked["distance"] = (cloud.distance[:, columns], cloud.direction[:, columns])
    if from_s is not None:
        moments = surrogate.problem.input_times(from_s).tolist()
        states = [solved_state(surrogate, cloud, moment) for moment in moments]
        initial = states[0] if len(states) == 1 else np.stack(states)
        return {**asked, "initial": initial, "steps": steps}
    if normaliser.has_boundary and cloud.boundary is not None:
        faces = cloud.boundary
        asked["boundary"] = {"points": faces.points, "patch": faces.patch, **faces.fields}
    return asked


def transferred_state(
    surrogate: Surrogate, case: StoredCase, cloud: PointCloud
) -> tuple[PointCloud, float]:
    """Return a mesh's cloud with the states that a rollout of a case starts from, and when, in s.

    They are those at the start of the training windows. Each cell has the values of the case's
    nearest cell: a body that lies elsewhere is not moved along.
    """
    begin = surrogate.problem.start(case)
    assert begin is not None and case.time is not None
    moments = surrogate.problem.input_times(begin)
    stored = np.asarray(case.time)
    frames = [int(np.abs(stored - moment).argmin()) for moment in moments.tolist()]
    nearest = cKDTree(case.points).query(cloud.points)[1]
    names = dict.fromkeys(channel.field for channel in surrogate.normaliser.channels)
    fields = {
        name: np.stack([np.asarray(case[name][frame]) for frame in frames])[:, nearest]
        for name in names
    }
    return replace(cloud, time=moments, fields=fields), begin


def solved_values(
    surrogate: Surrogate, cloud: PointCloud, times: np.ndarray | None
) -> np.ndarray | None:
    """Return the solver's values of a steady case or at all these times; None where it has none."""
    if not cloud.fields:
        return None
    if times is None:
        return _channels(surrogate, cloud.fields)
    if cloud.time is None or cloud.time[-1] < times[-1] * (1 - 1e-6):
        return None
    return np.stack([solved_state(surrogate, cloud, at) for at in times.tolist()])


def solved_state(surrogate: Surrogate, cloud: PointCloud, at_s: float) -> np.ndarray:
    """Return (N, C) at a stored time; InputError where nothing is stored then."""
    stored = np.zeros(0) if cloud.time is None else cloud.time
    nearest = int(np.abs(stored - at_s).argmin()) if len(stored) else -1
    if nearest < 0 or abs(stored[nearest] - at_s) > time_tolerance(stored):
        raise InputError(f"the solver stores no state at {at_s:g} s")
    return _channels(surrogate, {name: values[nearest] for name, values in cloud.fields.items()})


def _channels(surrogate: Surrogate, fields: Mapping[str, np.ndarray]) -> np.ndarray:
    """Return (..., N, C), the model's channels."""
    columns = [fields[each.field][..., each.column] for each in surrogate.normaliser.channels]
    return np.stack(columns, axis=-1)
