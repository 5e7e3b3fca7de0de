"""Steady problems: from geometry, boundary conditions and design parameters to the solved fields."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, ClassVar, cast

import numpy as np
import torch

from courant.data.batches import Batches, BatchOrder
from courant.data.inputs import check_boundary, check_distance, check_parameters, check_points
from courant.data.known import KnownCase, check_prescribed, prepare_inputs, read_known
from courant.data.normalisation import Normaliser
from courant.data.samples import Batch
from courant.data.steady import as_batch, load_steady_batches, load_steady_samples, read_solution
from courant.data.trajectories import select_anchors
from courant.experiment import Experiment, SteadyData
from courant.problems.problem import Kind, Problem, Request, Samples, Space, Window
from simgen.errors import InputError

if TYPE_CHECKING:
    from simgen.store.reader import Dataset, StoredCase


class SteadyProblem(Problem):
    """A whole case: a window of one step with nothing known in time."""

    kind: ClassVar[Kind] = "steady"
    takes = ("parameters", "boundary", "distance")
    needs = ("points", "parameters", "distance", "boundary")
    num_steps = 1
    step_s = None

    def __init__(self, experiment: Experiment, normaliser: Normaliser) -> None:
        super().__init__(experiment, normaliser)
        self.data = cast(SteadyData, experiment.data)

    def num_features(self) -> tuple[int, ...]:
        channels = len(self.normaliser.channels)
        if self.data.encoder == "boundary":
            return (channels,)
        return (channels + self.normaliser.num_distance_channels, channels)

    def check(self) -> None:
        check_prescribed(self.data.prescribed, self.normaliser.channels, self.normaliser.patch_kinds)

    def training(self, dataset: Dataset, order: BatchOrder, device: torch.device) -> Batches:
        return load_steady_batches(dataset, self.normaliser, self.data, order, self.num_anchors, device)

    def validation(self, dataset: Dataset, num: int, device: torch.device) -> Samples:
        """One case at a time: their clouds are large."""
        samples = load_steady_samples(dataset, "validation", self.normaliser, self.data, num, self.num_anchors, device)
        return lambda: (sample.batch for sample in samples)

    def prepare(self, request: Request, space: Space) -> Batch:
        self.refuse_foreign(request)
        if request.parameters is None:
            raise InputError(f"give parameters={{...}}, the design parameters {space.names}")
        check_parameters(request.parameters, space.parameters, space.family)
        wanted = check_points(request.points, "points", self.normaliser)
        if request.distance is None:
            raise InputError(
                "give distance=(distance, direction) at the points, to "
                f"{', '.join(self.normaliser.patch_kinds)}, as a stored case has them"
            )
        kinds = self.normaliser.patch_kinds
        field = check_distance(request.distance, len(wanted), kinds, "distance")
        conditions = check_boundary(request.boundary, self.normaliser, self.data)
        return self._batch(KnownCase(wanted, field, conditions, request.parameters))

    def case_inputs(self, case: StoredCase, start_s: float | None) -> Batch:
        self.check_case(case)
        self.start(case, start_s)
        return self._batch(read_known(case, self.normaliser, self.data))

    def windows(self, case: StoredCase) -> Iterator[Window]:
        yield Window(None, None, self.solution(case, None)[None])

    def solution(self, case: StoredCase, at_s: float | None) -> np.ndarray:
        return read_solution(case, self.normaliser)

    def start(self, case: StoredCase, asked: float | None = None) -> None:
        if asked is not None:
            raise InputError(f"a steady model starts from no state: leave out the start, {asked:g} s")

    def shown_start(self, case: StoredCase) -> None:
        return None

    def times(self, start_s: float, steps: int) -> None:
        return None

    def steps(self, asked: int | None) -> int:
        if asked is not None:
            raise InputError(f"a steady model predicts no steps: leave out steps = {asked}")
        return 1

    def presented(self, values: np.ndarray) -> np.ndarray:
        return values[0]

    def share_of_solve(self, case: StoredCase) -> float:
        return 1.0

    def _batch(self, known: KnownCase) -> Batch:
        """A batch of one; its targets are empty."""
        inputs = prepare_inputs(known, self.normaliser, self.data)
        anchors = select_anchors(torch.from_numpy(inputs.points)[None], self.num_anchors)
        return as_batch(inputs, anchors, np.zeros((0, len(self.normaliser.channels)), np.float32))
