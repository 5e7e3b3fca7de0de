"""The one place where kinds of problems differ; everything else is written once.

A problem turns stored cases into samples and a user's request into the same kind of sample. A
steady case is a window of one step with nothing known in time, so all predictions are (T, M, C)
fields and all batches have the same shape.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import torch

from courant.data.anchor_choice import AnchorChoice
from courant.data.batch import Batch
from courant.data.batches import Batches, BatchOrder
from courant.data.geometry import DistanceField
from courant.data.inputs import tell_caller
from courant.data.normalisation import Normaliser
from courant.experiment import Experiment, Kind
from simgen.errors import InputError

if TYPE_CHECKING:
    from simgen.store.access.reader import Dataset
    from simgen.store.access.stored_case import StoredCase

Samples = Callable[[], Iterator[Batch]]
"""Batches that can be iterated again and again"""


@dataclass(frozen=True)
class Request:
    """A request to a trained model, as the arguments of `Surrogate.predict`; None = not given."""

    points: np.ndarray
    initial: np.ndarray | None = None
    parameters: Mapping[str, float] | None = None
    boundary: Any = None
    distance: DistanceField | None = None
    queries: np.ndarray | None = None
    query_distance: DistanceField | None = None
    given: Mapping[str, Any] | None = None
    query_given: Mapping[str, Any] | None = None
    steps: int | None = None

    def parts(self) -> list[str]:
        """Names of the given arguments."""
        return [each.name for each in fields(self) if getattr(self, each.name) is not None]


@dataclass(frozen=True)
class Space:
    """The design space that a model was trained on, as kept in `dataset.json`."""

    family: str
    parameters: Sequence[Mapping[str, Any]]
    """name, unit, low and high of each design parameter"""

    @property
    def names(self) -> str:
        return ", ".join(each["name"] for each in self.parameters)


@dataclass(frozen=True)
class Window:
    """A piece of a solved case that a prediction can be compared with."""

    start_s: float | None
    """Time of the state that the prediction starts from; None in steady problems"""
    initial: np.ndarray | None
    """(N, C), that state"""
    truth: np.ndarray
    """(T, N, C)"""


class Problem(ABC):
    """One kind of problem, for one experiment and the normalisation of its data."""

    kind: ClassVar[Kind]
    takes: ClassVar[tuple[str, ...]]
    """Possible arguments of a request besides points, as far as the data have them"""

    def __init__(self, experiment: Experiment, normaliser: Normaliser) -> None:
        self.experiment, self.normaliser = experiment, normaliser

    @property
    @abstractmethod
    def needs(self) -> tuple[str, ...]:
        """The required arguments of a request, in words."""

    @property
    @abstractmethod
    def num_steps(self) -> int:
        """T of a training sample."""

    @property
    @abstractmethod
    def input_steps(self) -> int:
        """I, the states in time that a prediction starts from; 0 in steady problems."""

    @property
    @abstractmethod
    def step_s(self) -> float | None:
        """Time between predicted states; None in steady problems."""

    @abstractmethod
    def num_features(self) -> tuple[int, ...]:
        """The possible numbers of encoder channels: all, or without the distance field."""

    @abstractmethod
    def check(self) -> None:
        """Raise InputError where the experiment's data section does not suit this dataset."""

    @abstractmethod
    def training(self, dataset: Dataset, order: BatchOrder, device: torch.device) -> Batches:
        """Training batches, in memory or streamed."""

    @abstractmethod
    def validation(self, dataset: Dataset, num: int, device: torch.device) -> Samples:
        """Return at most `num` validation samples with every mesh point, on the device."""

    @abstractmethod
    def prepare(self, request: Request, space: Space) -> Batch:
        """Return a checked request as a batch of one; InputError where it cannot be answered."""

    @abstractmethod
    def case_inputs(self, case: StoredCase, start_s: float | None) -> Batch:
        """Return a batch of one for a stored case, starting at `start_s`."""

    @abstractmethod
    def windows(self, case: StoredCase) -> Iterator[Window]:
        """Yield every piece of the case that an evaluation predicts."""

    @abstractmethod
    def solution(self, case: StoredCase, at_s: float | None) -> np.ndarray | None:
        """Return (N, C), the solved state at a time; None where the case has none there."""

    @abstractmethod
    def start(self, case: StoredCase, asked: float | None = None) -> float | None:
        """Return the start of a case's prediction: as asked, or where training windows begin."""

    @abstractmethod
    def shown_start(self, case: StoredCase) -> float | None:
        """Return the start of the prediction of the case that a report shows."""

    @abstractmethod
    def times(self, start_s: float, steps: int) -> np.ndarray | None:
        """Return (T,) s, the times of the predicted states; None in steady problems."""

    @abstractmethod
    def input_times(self, start_s: float) -> np.ndarray:
        """Return (I,) s, the times of the states that a prediction from `start_s` reads.

        The last one is `start_s`; steady problems read none.
        """

    @abstractmethod
    def steps(self, asked: int | None) -> int:
        """Return how many steps a request is for; InputError for an impossible number."""

    @abstractmethod
    def steps_to_end(self, case: StoredCase, start_s: float | None) -> int | None:
        """Return the steps from a start to a case's last state; None in steady problems."""

    @abstractmethod
    def presented(self, values: np.ndarray) -> np.ndarray:
        """Return a prediction (T, ...) in the user's form: without T in steady problems."""

    @abstractmethod
    def share_of_solve(self, case: StoredCase) -> float | None:
        """Return the share of a case's solve that one prediction covers; None if unknown."""

    @property
    def reads_edges(self) -> bool:
        """Whether the model reads which points of a case's mesh share a face."""
        return self.experiment.model.reads_edges

    @property
    def anchors(self) -> AnchorChoice:
        """How points are sampled from each cloud for the model."""
        data = self.experiment.data
        return AnchorChoice(self.experiment.model.num_sampled_anchors, data.anchors_by)

    def sizes(self) -> dict[str, tuple[int | bool, ...]]:
        """Return the allowed sizes of the model.

        The smaller ones leave out the distance field of queries, then their given fields, or the
        design parameters.
        """
        distance, given = self.normaliser.num_distance_channels, len(self.normaliser.given)
        return {
            "num_features": self.num_features(),
            "num_outputs": (len(self.normaliser.channels),),
            "num_query_features": (given + distance, given, 0),
            "num_parameters": (len(self.normaliser.parameters), 0),
            "dimension": tuple(range(3, self.normaliser.dimension - 1, -1)),
            "transient": (self.kind == "transient",),
            # Of models that predict one step after the other; others have no such size.
            "input_steps": (max(1, self.input_steps),),
        }

    def wrong_sizes(self) -> list[str]:
        """List the model's sizes that do not fit, as `model.num_outputs = 3, expected 2`."""
        self.check()
        self._check_edges()
        model = self.experiment.model
        return [
            f"model.{name} = {getattr(model, name)}, expected"
            f" {' or '.join(map(str, dict.fromkeys(values)))}"
            for name, values in self.sizes().items()
            if getattr(model, name, values[0]) not in values
        ]

    def _check_edges(self) -> None:
        """Raise InputError where the model reads edges, and the data section no whole mesh."""
        if not self.reads_edges:
            return
        if self.experiment.data.points_per_sample is not None:
            raise InputError(
                'model.edges = "mesh" needs whole meshes: set data.points_per_sample to null, or'
                ' model.edges to "nearest"'
            )

    def check_request(self, request: Request) -> None:
        """Raise InputError for arguments of another kind of problem; warn of a missing mesh."""
        self._refuse_foreign(request)
        if self.reads_edges:
            tell_caller(
                "the model was trained on the edges of meshes, and the points of a request have"
                " none: each is connected to its nearest points, and errors are larger than those"
                " of stored cases"
            )

    def _refuse_foreign(self, request: Request) -> None:
        foreign = [name for name in request.parts() if name not in ("points", *self.takes)]
        if foreign:
            raise InputError(f"a {self.kind} model takes no {', '.join(foreign)}")
        absent = {
            "boundary": self.normaliser.has_boundary,
            "distance": bool(self.normaliser.stored_kinds),
            "query_distance": bool(self.normaliser.stored_kinds),
            "given": bool(self.normaliser.given),
            "query_given": bool(self.normaliser.given),
        }
        lacking = [name for name in request.parts() if not absent.get(name, True)]
        if lacking:
            raise InputError(f"this model's data have no {', '.join(lacking)}: leave it out")

    def needed_of_data(self) -> list[str]:
        """Return the required arguments of a request that the data define."""
        return ["given"] if self.normaliser.given else []

    def check_case(self, case: StoredCase) -> None:
        """Raise InputError for a case with boundary kinds that the model does not know."""
        if tuple(case.patch_kinds) != self.normaliser.patch_kinds:
            raise InputError(
                f"case {case.id} has patch kinds {', '.join(case.patch_kinds)}, "
                f"the model knows {', '.join(self.normaliser.patch_kinds)}"
            )
