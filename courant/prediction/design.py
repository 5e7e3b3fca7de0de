"""Parts of `Surrogate.predict_design`: a design that nobody has solved, and its quantities.

The family meshes the design, or the solver runs it. The start of a transient model's rollout comes
from the solver, or from the state of another design, transferred to this mesh. Quantities are
computed of predicted fields as they are of solved ones.
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
from courant.prediction.bands import DesignBands
from courant.problems import Problem
from courant.problems.transient import time_tolerance
from simgen.case import CaseFamily, SolvedCase
from simgen.design_space import DesignPoint
from simgen.errors import InputError
from simgen.point_cloud import PointCloud
from simgen.quantities import CaseFields, Quantity, compute, states_from

if TYPE_CHECKING:
    from courant.data.batch import Batch
    from simgen.store.read import StoredCase


class TooLargeError(InputError):
    """A mesh with more cells than the caller allows."""


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
    """The model's input, for `Surrogate.decompose_prepared`"""
    bands: DesignBands | None = None
    """Bands of error; None where the run is not calibrated"""
    fine: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    """Interval of quantities on an infinitely fine mesh, but for the model's error; empty where
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
class Start:
    """The geometry of a design, with the solver's fields where it ran."""

    cloud: PointCloud
    seconds: Seconds
    known_geometry: bool = False


def mesh(point: DesignPoint, folder: str | Path | None, max_points: int | None) -> Start:
    """Mesh a design, or read its known geometry in `folder` (None: in the user's cache)."""
    from simgen.solving.unsolved import mesh_design

    if folder is None:
        cache = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
        folder = Path(cache).expanduser() / "courant" / "geometry"
    began = time.perf_counter()
    cloud, known = mesh_design(point, Path(folder))
    if max_points is not None and cloud.num_points > max_points:
        raise TooLargeError(
            f"the mesh of this design has {cloud.num_points} cells, {max_points} are allowed"
        )
    return Start(cloud, Seconds(time.perf_counter() - began, 0.0, 0.0), known)


def solve(point: DesignPoint, folder: str | Path | None) -> Start:
    """Solve a design in a folder below `folder`; InputError where it is rejected or fails."""
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
    return Start(cloud, Seconds(float(took["mesh"]), float(took["solve"]), 0.0))


def transferred_state(problem: Problem, case: StoredCase, cloud: PointCloud) -> PointCloud:
    """Return a mesh's cloud with the states that a rollout of a case starts from.

    Each cell has the values of the case's nearest cell: a body that lies elsewhere is not moved
    along.
    """
    begin = problem.start(case)
    assert begin is not None and case.time is not None
    moments, stored = problem.input_times(begin), np.asarray(case.time)
    frames = [int(np.abs(stored - moment).argmin()) for moment in moments.tolist()]
    nearest = cKDTree(case.points).query(cloud.points)[1]
    names = dict.fromkeys(channel.field for channel in problem.normaliser.channels)
    fields = {
        name: np.stack([np.asarray(case[name][frame]) for frame in frames])[:, nearest]
        for name in names
    }
    return replace(cloud, time=moments, fields=fields)


def known_of_design(
    problem: Problem, point: DesignPoint, cloud: PointCloud, start_s: float | None
) -> dict[str, Any]:
    """Return the arguments of `Surrogate.predict` besides points and steps.

    Of a steady design's fields they hold the boundary's alone, which are conditions.
    """
    normaliser = problem.normaliser
    known: dict[str, Any] = {"parameters": point.parameters} if normaliser.parameters else {}
    if normaliser.stored_kinds:
        columns = [cloud.patch_kinds.index(kind) for kind in normaliser.stored_kinds]
        assert cloud.distance is not None and cloud.direction is not None
        known["distance"] = (cloud.distance[:, columns], cloud.direction[:, columns])
    if start_s is not None:
        moments = problem.input_times(start_s).tolist()
        states = [solved_state(normaliser.channels, cloud, moment) for moment in moments]
        known["initial"] = states[0] if len(states) == 1 else np.stack(states)
    elif normaliser.has_boundary and cloud.boundary is not None:
        faces = cloud.boundary
        known["boundary"] = {"points": faces.points, "patch": faces.patch, **faces.fields}
    return known


def solved_values(
    channels: Sequence[Channel], cloud: PointCloud, times: np.ndarray | None
) -> np.ndarray | None:
    """Return the solver's values of a steady case or at all these times; None where it has none."""
    if not cloud.fields:
        return None
    if times is None:
        return np.stack([cloud.fields[each.field][..., each.column] for each in channels], axis=-1)
    if cloud.time is None or cloud.time[-1] < times[-1] * (1 - 1e-6):
        return None
    return np.stack([solved_state(channels, cloud, at) for at in times.tolist()])


def solved_state(channels: Sequence[Channel], cloud: PointCloud, at_s: float) -> np.ndarray:
    """Return (N, C) at a stored time; InputError where nothing is stored then."""
    stored = np.zeros(0) if cloud.time is None else cloud.time
    nearest = int(np.abs(stored - at_s).argmin()) if len(stored) else -1
    if nearest < 0 or abs(stored[nearest] - at_s) > time_tolerance(stored):
        raise InputError(f"the solver stores no state at {at_s:g} s")
    columns = [cloud.fields[each.field][nearest][..., each.column] for each in channels]
    return np.stack(columns, axis=-1)


def quantities_from(
    quantities: Sequence[Quantity], fields: CaseFields, since_s: float
) -> dict[str, float]:
    """Compute quantities by name, of a transient case from `since_s` on; NaN without a state."""
    cloud = states_from(fields.cloud, since_s)
    if cloud.time is not None and not len(cloud.time):
        return dict.fromkeys((each.name for each in quantities), float("nan"))
    return compute(quantities, CaseFields(fields.parameters, fields.settings, cloud))


def by_field(values: np.ndarray, channels: Sequence[Channel]) -> dict[str, np.ndarray]:
    """Split (..., C) into fields (..., components); components that are not modelled are zero."""
    fields: dict[str, np.ndarray] = {}
    for name in dict.fromkeys(channel.field for channel in channels):
        columns = {each.column: c for c, each in enumerate(channels) if each.field == name}
        values_of = fields[name] = np.zeros((*values.shape[:-1], 1 + max(columns)), values.dtype)
        for column, place in columns.items():
            values_of[..., column] = values[..., place]
    return fields


def counted_from_s(
    family: CaseFamily,
    settings: Mapping[str, float],
    step_s: float | None,
    times: np.ndarray | None,
) -> float:
    """Return the time from which predicted states count in quantities.

    A rollout to the end of the dataset's cases is measured as these are, from the family's settled
    state on; of any other one all predicted states count.
    """
    if times is None or step_s is None:
        return 0.0
    to_the_end = times[-1] > settings[family.horizon] - step_s * (1 - 1e-6)
    return family.settled_from_s(settings) if to_the_end else 0.0
