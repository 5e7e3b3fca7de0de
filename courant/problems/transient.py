"""Transient problems: predict later states from a snapshot of the flow and its geometry."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, ClassVar, cast

import numpy as np
import torch

from courant.data.batch import Batch
from courant.data.batches import Batches, BatchOrder
from courant.data.geometry import DistanceField, distance_field, read_edges
from courant.data.inputs import (
    check_array,
    check_distance,
    check_given,
    check_parameters,
    check_points,
    check_steps,
)
from courant.data.loading import load_batches, load_windows
from courant.data.normalisation import Normaliser
from courant.data.samples import full_batch
from courant.data.trajectories import TIME_TOLERANCE, is_spatial, read_states, time_tolerance
from courant.data_config import TransientData
from courant.experiment import Experiment, Kind
from courant.problems.problem import Problem, Request, Samples, Space, Window
from simgen.errors import InputError

if TYPE_CHECKING:
    from simgen.store.access.reader import Dataset
    from simgen.store.access.stored_case import StoredCase

VALIDATION_BATCH = 16


@dataclass(frozen=True)
class Cloud:
    """Points with what is known there of a case, in physical units."""

    points: np.ndarray
    """(N, 3) m"""
    field: DistanceField | None
    given: np.ndarray
    """(N, G) at the start"""

    def features(self, normaliser: Normaliser) -> np.ndarray:
        """(N, G + D) normalised."""
        distance = normaliser.distance_channels(self.field, len(self.points))
        return np.concatenate([normaliser.standardise_given(self.given), distance], axis=-1)


class TransientProblem(Problem):
    """Windows of a trajectory: the I states up to t0, and the states after 1..T steps."""

    kind: ClassVar[Kind] = "transient"
    takes = (
        "initial",
        "parameters",
        "distance",
        "queries",
        "query_distance",
        "given",
        "query_given",
        "steps",
    )

    def __init__(self, experiment: Experiment, normaliser: Normaliser) -> None:
        super().__init__(experiment, normaliser)
        self.data = cast(TransientData, experiment.data)

    @property
    def needs(self) -> tuple[str, ...]:
        geometry = ["parameters or distance"] if self.normaliser.stored_kinds else []
        if self.experiment.model.num_parameters:
            geometry = ["parameters"]
        return ("points", "initial", *geometry, *self.needed_of_data())

    @property
    def num_steps(self) -> int:
        return self.data.window_steps

    @property
    def input_steps(self) -> int:
        return self.data.input_steps

    @property
    def step_s(self) -> float:
        return self.data.step_s

    def num_features(self) -> tuple[int, ...]:
        modelled, given = len(self.normaliser.channels), len(self.normaliser.given)
        known = self.input_steps * modelled + given
        return (known + self.normaliser.num_distance_channels, known)

    def check(self) -> None:
        if self.data.mirror_y and self.experiment.model.num_parameters:
            raise InputError(
                "data.mirror_y with model.num_parameters: the parameters of a mirrored design are"
                " not known; set one of them to false or 0"
            )
        of_field = Counter(each.field for each in self.normaliser.read_channels)
        for each in self.normaliser.read_channels if self.data.mirror_y else ():
            if of_field[each.field] > 1 and not is_spatial(each.component):
                raise InputError(
                    f"data.mirror_y: nothing says how {each.name} changes in a mirror image; set it"
                    " to false, or name the field's components by x, y and z"
                )

    def training(self, dataset: Dataset, order: BatchOrder, device: torch.device) -> Batches:
        return load_batches(
            dataset, self.normaliser, self.data, order, self.anchors, device, self.reads_edges
        )

    def validation(self, dataset: Dataset, num: int, device: torch.device) -> Samples:
        how = (num, self.anchors, device, self.reads_edges)
        held, windows = load_windows(dataset, "validation", self.normaliser, self.data, *how)
        draw = partial(full_batch, held, config=self.data)
        return lambda: (draw(windows=chosen) for chosen in windows.split(VALIDATION_BATCH))

    def prepare(self, request: Request, space: Space) -> Batch:
        self.check_request(request)
        if request.initial is None:
            raise InputError(f"give initial, the state ({self._known}) at each point")
        parameters = request.parameters
        if parameters is not None:
            check_parameters(parameters, space.parameters, space.family)
        elif self.experiment.model.num_parameters:
            raise InputError(f"give parameters={{...}}, the design parameters {space.names}")
        points = check_points(request.points, "points", self.normaliser)
        one = (len(points), len(self.normaliser.channels))
        shape = one if self.input_steps == 1 else (self.input_steps, *one)
        states = check_array(request.initial, shape, f"initial ({self._known} at each point)")
        states = states.reshape(self.input_steps, len(points), -1)
        field = self._distance(points, request.distance, "distance", parameters, space.family)
        given = check_given(request.given, len(points), self.normaliser, "given")
        cloud = queries = Cloud(points, field, given)
        if request.queries is not None:
            points = check_points(request.queries, "queries", self.normaliser)
            field = self._distance(
                points, request.query_distance, "query_distance", parameters, space.family
            )
            given = check_given(request.query_given, len(points), self.normaliser, "query_given")
            queries = Cloud(points, field, given)
        return self._batch(cloud, states, queries, parameters)

    def case_inputs(self, case: StoredCase, start_s: float | None) -> Batch:
        self.check_case(case)
        moments = self.input_times(self.start(case, start_s))
        frames = [self.snapshot(case, moment) for moment in moments.tolist()]
        known = read_states(
            case,
            self.normaliser.read_channels,
            slice(frames[0], frames[-1] + 1, frames[-1] - frames[-2] if len(frames) > 1 else 1),
        )
        states, given = np.split(known, [len(self.normaliser.channels)], axis=-1)
        has_distance = bool(self.normaliser.stored_kinds)
        field = (np.asarray(case.distance), np.asarray(case.direction)) if has_distance else None
        cloud = Cloud(np.asarray(case.points), field, given[-1])
        edges = read_edges(case) if self.reads_edges else None
        return self._batch(cloud, states, cloud, case.parameters, edges)

    def windows(self, case: StoredCase) -> Iterator[Window]:
        """Yield one window per step of the rollout, from where training windows begin."""
        times = np.asarray(case.time)
        states = read_states(case, self.normaliser.channels, slice(None))
        last = times[-1] - self.num_steps * self.step_s
        starts = np.arange(self.start(case), last + time_tolerance(times), self.step_s)
        if not len(starts):
            raise InputError(
                f"case {case.id} ends at {times[-1]:g} s: no window of"
                f" {self.num_steps * self.step_s:g} s fits after {self.data.start_s:g} s"
            )
        for start in starts.tolist():
            after = [
                self.snapshot(case, moment) for moment in self.times(start, self.num_steps).tolist()
            ]
            yield Window(start, states[self.snapshot(case, start)], states[after])

    def solution(self, case: StoredCase, at_s: float | None) -> np.ndarray | None:
        frame = self._find(case, self.start(case, at_s))
        return None if frame is None else self._state(case, frame)

    def start(self, case: StoredCase, asked: float | None = None) -> float:
        """Return the last known state's time in the first training window."""
        if asked is not None:
            return asked
        time = np.asarray(case.time)
        late = time[time >= self.data.start_s - time_tolerance(time)]
        if not len(late):
            raise InputError(
                f"case {case.id} ends at {time[-1]:g} s, before data.start_s ="
                f" {self.data.start_s:g} s"
            )
        return float(late[0]) + (self.input_steps - 1) * self.step_s

    def shown_start(self, case: StoredCase) -> float:
        """Choose the start so that the last predicted state is the case's last."""
        return float(np.asarray(case.time)[-1] - self.num_steps * self.step_s)

    def times(self, start_s: float, steps: int) -> np.ndarray:
        return start_s + self.step_s * np.arange(1, steps + 1)

    def input_times(self, start_s: float) -> np.ndarray:
        return start_s + self.step_s * np.arange(1 - self.input_steps, 1)

    def steps(self, asked: int | None) -> int:
        return self.num_steps if asked is None else check_steps(asked)

    def steps_to_end(self, case: StoredCase, start_s: float | None) -> int:
        last = float(np.asarray(case.time)[-1])
        return int((last - self.start(case, start_s)) / self.step_s + TIME_TOLERANCE)

    def presented(self, values: np.ndarray) -> np.ndarray:
        return values

    def share_of_solve(self, case: StoredCase) -> float | None:
        end = case.settings.get("end_time")
        return self.num_steps * self.step_s / end if end else None

    def snapshot(self, case: StoredCase, at_s: float) -> int:
        """Return the number of the case's snapshot at a time; InputError where there is none."""
        frame = self._find(case, at_s)
        if frame is None:
            time = np.asarray(case.time)
            nearest = time[np.abs(time - at_s).argmin()]
            raise InputError(
                f"case {case.id} has no snapshot at {at_s:g} s; its snapshots run from {time[0]:g}"
                f" to {time[-1]:g} s, the nearest is {nearest:g} s"
            )
        return frame

    def _find(self, case: StoredCase, at_s: float) -> int | None:
        time = np.asarray(case.time)
        away = np.abs(time - at_s)
        nearest = int(away.argmin())
        return nearest if away[nearest] <= time_tolerance(time) else None

    def _state(self, case: StoredCase, frame: int) -> np.ndarray:
        """(N, C)"""
        return read_states(case, self.normaliser.channels, slice(frame, frame + 1))[0]

    @property
    def _known(self) -> str:
        channels = ", ".join(channel.name for channel in self.normaliser.channels)
        if self.input_steps == 1:
            return channels
        return f"{channels} at {self.input_steps} times {self.step_s:g} s apart, the oldest first,"

    def _batch(
        self,
        cloud: Cloud,
        states: np.ndarray,
        queries: Cloud,
        parameters: Mapping[str, float] | None,
        edges: np.ndarray | None = None,
    ) -> Batch:
        """Build a batch of one from points, what is known there, and the states (I, N, C)."""
        normaliser = self.normaliser
        known = normaliser.standardise(states).transpose(1, 0, 2).reshape(len(cloud.points), -1)
        positions = torch.from_numpy(normaliser.points(cloud.points))[None]
        features = np.concatenate([known, cloud.features(normaliser)], axis=-1)
        num_channels = len(normaliser.channels)
        design = np.zeros(0, np.float32) if parameters is None else normaliser.design(parameters)
        return Batch(
            points=positions,
            features=torch.from_numpy(features)[None],
            mask=None,
            anchors=self.anchors.among(positions),
            query_points=torch.from_numpy(normaliser.points(queries.points))[None],
            query_features=torch.from_numpy(queries.features(normaliser))[None],
            query_mask=None,
            targets=torch.zeros(1, 0, len(queries.points), num_channels),
            parameters=torch.from_numpy(design)[None],
            neighbours=None if edges is None else torch.from_numpy(edges)[None],
        )

    def _distance(
        self,
        points: np.ndarray,
        given: DistanceField | None,
        name: str,
        parameters: Mapping[str, float] | None,
        family: str,
    ) -> DistanceField | None:
        if not self.normaliser.stored_kinds:
            return None
        if given is not None:
            return check_distance(given, len(points), self.normaliser.stored_kinds, name)
        if parameters is None:
            raise InputError(
                f"give the geometry: parameters={{...}} or {name}=(distance, direction)"
            )
        return distance_field(family, points, parameters)
