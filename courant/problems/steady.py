"""Steady problems: predict solved fields from geometry, boundary conditions and parameters."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, ClassVar, cast

import numpy as np
import torch

from courant.data.batch import Batch
from courant.data.batches import Batches, BatchOrder
from courant.data.geometry import DistanceField, read_edges
from courant.data.inputs import (
    check_boundary,
    check_distance,
    check_given,
    check_parameters,
    check_points,
)
from courant.data.known import KnownCase, check_prescribed, prepare_inputs, read_known
from courant.data.normalisation import Normaliser
from courant.data.steady import as_batch, load_steady_batches, load_steady_samples, read_solution
from courant.data_config import SteadyData
from courant.experiment import Experiment, Kind
from courant.problems.problem import Problem, Request, Samples, Space, Window
from simgen.errors import InputError

if TYPE_CHECKING:
    from simgen.store.access.reader import Dataset
    from simgen.store.access.stored_case import StoredCase


class SteadyProblem(Problem):
    """A whole case: a window of one step with nothing known in time."""

    kind: ClassVar[Kind] = "steady"
    takes = ("parameters", "boundary", "distance", "given")
    num_steps = 1
    input_steps = 0
    step_s = None

    def __init__(self, experiment: Experiment, normaliser: Normaliser) -> None:
        super().__init__(experiment, normaliser)
        self.data = cast(SteadyData, experiment.data)

    @property
    def needs(self) -> tuple[str, ...]:
        parts = {
            "parameters": bool(self.normaliser.parameters),
            "distance": bool(self.normaliser.stored_kinds),
            "boundary": self.normaliser.has_boundary,
        }
        there = [name for name, is_there in parts.items() if is_there]
        return ("points", *there, *self.needed_of_data())

    def num_features(self) -> tuple[int, ...]:
        channels = len(self.normaliser.channels) if self.normaliser.has_boundary else 0
        if self.data.encoder == "boundary":
            return (channels,)
        known, distance = (
            channels + len(self.normaliser.given),
            self.normaliser.num_distance_channels,
        )
        if not known + distance:
            return (self.normaliser.dimension,)
        return (known + distance, known)

    def check(self) -> None:
        if self.data.encoder == "boundary" and not self.normaliser.has_boundary:
            raise InputError(
                'data.encoder = "boundary", and the data have no boundary cloud; set it to "mesh"'
            )
        if self.data.prescribed and not self.normaliser.has_boundary:
            raise InputError("data.prescribed: the data have no boundary cloud; leave it out")
        check_prescribed(
            self.data.prescribed, self.normaliser.channels, self.normaliser.patch_kinds
        )

    def training(self, dataset: Dataset, order: BatchOrder, device: torch.device) -> Batches:
        return load_steady_batches(
            dataset, self.normaliser, self.data, order, self.anchors, device, self.reads_edges
        )

    def validation(self, dataset: Dataset, num: int, device: torch.device) -> Samples:
        """Yield one case at a time: their clouds are large."""
        samples = load_steady_samples(
            dataset,
            "validation",
            self.normaliser,
            self.data,
            num,
            self.anchors,
            device,
            self.reads_edges,
        )
        return lambda: (sample.batch for sample in samples)

    def prepare(self, request: Request, space: Space) -> Batch:
        self.check_request(request)
        if request.parameters is None and space.parameters:
            raise InputError(f"give parameters={{...}}, the design parameters {space.names}")
        parameters = request.parameters or {}
        check_parameters(parameters, space.parameters, space.family)
        wanted = check_points(request.points, "points", self.normaliser)
        field = self._distance(request, len(wanted))
        conditions = None
        if self.normaliser.has_boundary:
            conditions = check_boundary(request.boundary, self.normaliser, self.data)
        given = check_given(request.given, len(wanted), self.normaliser, "given")
        return self._batch(KnownCase(wanted, field, conditions, parameters, given))

    def _distance(self, request: Request, num_points: int) -> DistanceField | None:
        kinds = self.normaliser.stored_kinds
        if not kinds:
            return None
        if request.distance is None:
            raise InputError(
                f"give distance=(distance, direction) at the points, to {', '.join(kinds)}, as a"
                " stored case has them"
            )
        return check_distance(request.distance, num_points, kinds, "distance")

    def case_inputs(self, case: StoredCase, start_s: float | None) -> Batch:
        self.check_case(case)
        self.start(case, start_s)
        edges = read_edges(case) if self.reads_edges else None
        return self._batch(read_known(case, self.normaliser, self.data), edges)

    def windows(self, case: StoredCase) -> Iterator[Window]:
        yield Window(None, None, self.solution(case, None)[None])

    def solution(self, case: StoredCase, at_s: float | None) -> np.ndarray:
        return read_solution(case, self.normaliser)

    def start(self, case: StoredCase, asked: float | None = None) -> None:
        if asked is not None:
            raise InputError(
                f"a steady model starts from no state: leave out the start, {asked:g} s"
            )

    def shown_start(self, case: StoredCase) -> None:
        return None

    def times(self, start_s: float, steps: int) -> None:
        return None

    def input_times(self, start_s: float) -> np.ndarray:
        return np.zeros(0)

    def steps(self, asked: int | None) -> int:
        if asked is not None:
            raise InputError(f"a steady model predicts no steps: leave out steps = {asked}")
        return 1

    def steps_to_end(self, case: StoredCase, start_s: float | None) -> None:
        return None

    def presented(self, values: np.ndarray) -> np.ndarray:
        return values[0]

    def share_of_solve(self, case: StoredCase) -> float:
        return 1.0

    def _batch(self, known: KnownCase, edges: np.ndarray | None = None) -> Batch:
        """Build a batch of one, of the points' edges if there are any; its targets are empty."""
        inputs = prepare_inputs(known, self.normaliser, self.data)
        anchors = self.anchors.among(torch.from_numpy(inputs.points)[None])
        nothing = np.zeros((0, len(self.normaliser.channels)), np.float32)
        return as_batch(inputs, anchors, nothing, edges)
