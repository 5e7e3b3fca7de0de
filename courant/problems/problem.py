"""The one place where kinds of problems differ; everything else is written once.

A problem turns stored cases into samples and a user's request into the same kind of sample. A steady case is a window
of one step with nothing known in time, so all predictions are (T, M, C) fields and all batches have the same shape.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
import torch

from courant.data.batches import Batches, BatchOrder
from courant.data.geometry import DistanceField
from courant.data.normalisation import Normaliser
from courant.data.samples import Batch
from courant.experiment import Experiment
from simgen.errors import InputError

if TYPE_CHECKING:
    from simgen.store.reader import Dataset, StoredCase

Kind = Literal["transient", "steady"]
Samples = Callable[[], Iterator[Batch]]
"""Batches that can be gone through again and again."""


@dataclass(frozen=True)
class Request:
    """What a user asks a trained model for, as the arguments of `Surrogate.predict`; None where nothing was given."""

    points: np.ndarray
    initial: np.ndarray | None = None
    parameters: Mapping[str, float] | None = None
    boundary: Any = None
    distance: DistanceField | None = None
    queries: np.ndarray | None = None
    query_distance: DistanceField | None = None
    steps: int | None = None

    def given(self) -> list[str]:
        """Names of what was given."""
        return [each.name for each in fields(self) if getattr(self, each.name) is not None]


@dataclass(frozen=True)
class Space:
    """The design space that a model was trained on, as `dataset.json` keeps it."""

    family: str
    parameters: Sequence[Mapping[str, Any]]
    """name, unit, low and high of each design parameter"""

    @property
    def names(self) -> str:
        return ", ".join(each["name"] for each in self.parameters)


@dataclass(frozen=True)
class Window:
    """A piece of a solved case that a prediction can be held against."""

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
    """What a request may hold beside points"""
    needs: ClassVar[tuple[str, ...]]
    """What a request must hold, in words"""

    def __init__(self, experiment: Experiment, normaliser: Normaliser) -> None:
        self.experiment, self.normaliser = experiment, normaliser

    @property
    @abstractmethod
    def num_steps(self) -> int:
        """T of a training sample."""

    @property
    @abstractmethod
    def step_s(self) -> float | None:
        """Time between predicted states; None where there is no time."""

    @abstractmethod
    def num_features(self) -> tuple[int, ...]:
        """The channels that an encoder may read at each point: all of them, or without the distance field."""

    @abstractmethod
    def check(self) -> None:
        """InputError where the experiment's data section makes no sense on this dataset."""

    @abstractmethod
    def training(self, dataset: Dataset, order: BatchOrder, device: torch.device) -> Batches:
        """Training batches, in memory or streamed."""

    @abstractmethod
    def validation(self, dataset: Dataset, num: int, device: torch.device) -> Samples:
        """At most `num` samples of the validation split with every point of their meshes, on the device."""

    @abstractmethod
    def prepare(self, request: Request, space: Space) -> Batch:
        """A checked request as a batch of one; InputError where it cannot be answered."""

    @abstractmethod
    def case_inputs(self, case: StoredCase, start_s: float | None) -> Batch:
        """A batch of one for a stored case, which the prediction starts from at `start_s`."""

    @abstractmethod
    def windows(self, case: StoredCase) -> Iterator[Window]:
        """Every piece of the case that is predicted in an evaluation."""

    @abstractmethod
    def solution(self, case: StoredCase, at_s: float | None) -> np.ndarray | None:
        """(N, C), the solved state at a time; None where the case holds none there."""

    @abstractmethod
    def start(self, case: StoredCase, asked: float | None = None) -> float | None:
        """When a case's prediction starts: at the time asked for, or where training windows begin."""

    @abstractmethod
    def shown_start(self, case: StoredCase) -> float | None:
        """Where the prediction starts that a report shows of the case."""

    @abstractmethod
    def times(self, start_s: float, steps: int) -> np.ndarray | None:
        """(T,) s, when the predicted states are; None where there is no time."""

    @abstractmethod
    def steps(self, asked: int | None) -> int:
        """How many steps a request is for; InputError where that cannot be."""

    @abstractmethod
    def presented(self, values: np.ndarray) -> np.ndarray:
        """A prediction (T, ...) as a user sees it: without T where there is no time."""

    @abstractmethod
    def share_of_solve(self, case: StoredCase) -> float | None:
        """The part of a case's solution that one prediction stands for; None where the case does not say."""

    @property
    def num_anchors(self) -> int:
        """Points that are sampled from each cloud for the model."""
        return self.experiment.model.num_sampled_anchors

    def sizes(self) -> dict[str, tuple[int | bool, ...]]:
        """What the model's sizes may be; 0 leaves out the distance field of queries, or the design parameters."""
        distance = self.normaliser.num_distance_channels
        return {
            "num_features": self.num_features(),
            "num_outputs": (len(self.normaliser.channels),),
            "num_query_features": (distance, 0),
            "num_parameters": (len(self.normaliser.parameters), 0),
            "dimension": tuple(range(3, self.normaliser.dimension - 1, -1)),
            "transient": (self.kind == "transient",),
        }

    def wrong_sizes(self) -> list[str]:
        """The model's sizes that are not those of the data, as `model.num_outputs = 3, expected 2`."""
        self.check()
        model = self.experiment.model
        return [
            f"model.{name} = {getattr(model, name)}, expected {' or '.join(map(str, dict.fromkeys(values)))}"
            for name, values in self.sizes().items()
            if getattr(model, name) not in values
        ]

    def refuse_foreign(self, request: Request) -> None:
        """InputError for arguments of another kind of problem."""
        foreign = [name for name in request.given() if name not in ("points", *self.takes)]
        if foreign:
            raise InputError(f"a {self.kind} model takes no {', '.join(foreign)}")

    def check_case(self, case: StoredCase) -> None:
        """InputError for a case whose boundary is of other kinds than the model knows."""
        if tuple(case.patch_kinds) != self.normaliser.patch_kinds:
            raise InputError(
                f"case {case.id} has patch kinds {', '.join(case.patch_kinds)}, "
                f"the model knows {', '.join(self.normaliser.patch_kinds)}"
            )
