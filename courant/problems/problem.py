"""The one place where kinds of problems differ; everything else is written once.

A problem turns stored cases and the arguments of a request into samples. A steady case is a window
of one step with nothing known in time. What a user passes to a model is checked here.
"""

from __future__ import annotations

import inspect
import numbers
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from courant.data.batch import Batch, Batches, BatchOrder
from courant.data.geometry import AnchorChoice, DistanceField
from courant.data.normalisation import Channel, Normaliser
from courant.experiment import Experiment, Kind, SampleData
from simgen.design_space import Parameter
from simgen.errors import InputError

if TYPE_CHECKING:
    from simgen.store.read import Dataset, LocalCache, StoredCase

#: Share of the domain's longest edge by which points may lie outside of all cell centres; faces lie
#: half a cell beyond them.
BOUNDS_TOLERANCE, FACES_TOLERANCE = 0.02, 0.1
Samples = Callable[[], Iterator[Batch]]  # batches that can be iterated again and again


@dataclass(frozen=True)
class Window:
    """A piece of a solved case that a prediction can be compared with."""

    start_s: float | None
    """Time of the state that the prediction starts from; None in steady problems"""
    initial: np.ndarray | None  # (N, C), that state
    truth: np.ndarray  # (T, N, C)


class Problem(ABC):
    """One kind of problem, for one experiment; what depends on time is that of a steady one."""

    kind: ClassVar[Kind]
    takes: ClassVar[tuple[str, ...]]
    """Possible arguments of a request besides points, as far as the data have them"""
    data: SampleData
    num_steps: int  # T of a training sample
    input_steps: int  # I, the states in time that a prediction starts from; 0 in steady problems
    step_s: float | None  # Time between predicted states; None in steady problems

    def __init__(self, experiment: Experiment, normaliser: Normaliser) -> None:
        self.experiment, self.normaliser, self.data = experiment, normaliser, experiment.data
        self.reads_edges = experiment.model.reads_edges
        """Whether the model reads which points of a case's mesh share a face"""
        self.anchors = AnchorChoice(experiment.model.num_sampled_anchors, self.data.anchors_by)
        """How points are sampled from each cloud for the model"""

    @property
    @abstractmethod
    def needs(self) -> tuple[str, ...]:
        """The required arguments of a request, in words."""

    @abstractmethod
    def num_features(self) -> tuple[int, ...]:
        """The possible numbers of encoder channels: all, or without the distance field."""

    @abstractmethod
    def check(self) -> None:
        """Raise InputError where the experiment's data section does not suit this dataset."""

    @abstractmethod
    def training(self, dataset: Dataset, order: BatchOrder, device: torch.device) -> Batches:
        """Return training batches, in memory or streamed."""

    @abstractmethod
    def validation(self, dataset: Dataset, num: int, device: torch.device) -> Samples:
        """Return at most `num` validation samples with every mesh point, on the device."""

    @abstractmethod
    def prepare(self, space: Sequence[Parameter], points: np.ndarray, **parts: Any) -> Batch:
        """Return a checked request as a batch of one; InputError where it cannot be answered.

        `space` is that of the training, points are (N, 2 or 3) m; `parts` are the keywords that
        `takes` names, None = not given.
        """

    @abstractmethod
    def case_inputs(self, case: StoredCase, start_s: float | None, steps: int | None) -> Batch:
        """Return a batch of one for a stored case from `start_s`; targets are (1, T, 0, C)."""

    @abstractmethod
    def windows(self, case: StoredCase) -> Iterator[Window]:
        """Yield every piece of the case that an evaluation predicts."""

    @abstractmethod
    def solution(self, case: StoredCase, at_s: float | None) -> np.ndarray | None:
        """Return (N, C), the solved state at a time; None where the case has none there."""

    def solutions(self, case: StoredCase, times: Iterable[float] | None) -> np.ndarray | None:
        """Return solved states (T, N, C) at times, NaN where there is none, or a field (N, C).

        None where the case has no state at any of the times.
        """
        asked = [None] if times is None else [float(time) for time in times]
        states = [self.solution(case, time) for time in asked]
        known = next((each for each in states if each is not None), None)
        if known is None or times is None:
            return known
        return np.stack([np.full_like(known, np.nan) if each is None else each for each in states])

    def start(self, case: StoredCase, asked: float | None = None) -> float | None:
        """Return the start of a case's prediction: as asked, or where training windows begin."""
        if asked is not None:
            raise InputError(f"a steady model starts from no state: leave out start = {asked:g} s")
        return None

    def shown_start(self, case: StoredCase) -> float | None:
        """Return the start of the prediction of the case that a report shows."""
        return None

    def steps(self, asked: int | None) -> int:
        """Return how many steps a request is for; InputError for an impossible number."""
        if asked is not None:
            raise InputError(f"a steady model predicts no steps: leave out steps = {asked}")
        return 1

    def steps_to_end(self, case: StoredCase, start_s: float | None) -> int | None:
        """Return the steps from a start to a case's last state; None in steady problems."""
        return None

    def times(self, start_s: float, steps: int) -> np.ndarray | None:
        """Return (T,) s, the times of the predicted states; None in steady problems."""
        return None if self.step_s is None else start_s + self.step_s * np.arange(1, steps + 1)

    def input_times(self, start_s: float) -> np.ndarray:
        """Return (I,) s, the times of the states that are read, the last one `start_s`."""
        return start_s + (self.step_s or 0.0) * np.arange(1 - self.input_steps, 1)

    def presented(self, values: np.ndarray) -> np.ndarray:
        """Return a prediction (T, ...) in the user's form: without T in steady problems."""
        return np.asarray(values[0]) if self.step_s is None else values

    def share_of_solve(self, case: StoredCase) -> float | None:
        """Return the share of a case's solve that one prediction covers; None if unknown."""
        if self.step_s is None:
            return 1.0
        end = case.settings.get("end_time") or (None if case.time is None else float(case.time[-1]))
        return self.num_steps * self.step_s / end if end else None

    def wrong_sizes(self) -> list[str]:
        """List sizes of the model that do not fit; smaller ones leave out a part of the input."""
        self.check()
        if self.reads_edges and self.data.points_per_sample is not None:
            raise InputError(
                'model.edges = "mesh" needs whole meshes: set data.points_per_sample to null, or'
                ' model.edges to "nearest"'
            )
        model, normaliser = self.experiment.model, self.normaliser
        distance, given = normaliser.num_distance_channels, len(normaliser.given)
        sizes: dict[str, tuple[int | bool, ...]] = {
            "num_features": self.num_features(),
            "num_outputs": (len(normaliser.channels),),
            "num_query_features": (given + distance, given, 0),
            "num_parameters": (len(normaliser.parameters), 0),
            "dimension": tuple(range(3, normaliser.dimension - 1, -1)),
            "transient": (self.kind == "transient",),
            # Of models that predict one step after the other; others have no such size.
            "input_steps": (max(1, self.input_steps),),
        }
        return [
            f"model.{name} = {getattr(model, name)}, expected"
            f" {' or '.join(map(str, dict.fromkeys(values)))}"
            for name, values in sizes.items()
            if getattr(model, name, values[0]) not in values
        ]

    def check_parts(self, parts: Mapping[str, Any]) -> None:
        """Raise InputError for arguments of another kind of problem; warn of a missing mesh."""
        passed = [name for name, value in parts.items() if value is not None]
        if unknown := [name for name in passed if name not in self.takes]:
            raise InputError(f"a {self.kind} model takes no {', '.join(unknown)}")
        in_data = {
            "boundary": self.normaliser.has_boundary,
            "distance": bool(self.normaliser.stored_kinds),
            "given": bool(self.normaliser.given),
        }
        if lacking := [n for n in passed if not in_data.get(n.removeprefix("query_"), True)]:
            raise InputError(f"this model's data have no {', '.join(lacking)}: leave it out")
        if self.reads_edges:
            warn_caller(
                "the model was trained on the edges of meshes, and the points of a request have"
                " none: each is connected to its nearest points, and errors are larger"
            )

    def features_at(
        self, points: np.ndarray, field: DistanceField | None, given: np.ndarray
    ) -> np.ndarray:
        """Return (N, G + D) normalised: given fields (N, G), and the distance field of points."""
        distance = self.normaliser.distance_channels(field, len(points))
        return np.concatenate([self.normaliser.standardise_given(given), distance], axis=1)

    def sample(
        self,
        points: np.ndarray,
        features: np.ndarray,
        queries: np.ndarray,
        query_features: np.ndarray,
        parameters: Mapping[str, float] | None,
        *,
        num_steps: int = 1,
        edges: np.ndarray | None = None,
        anchors: Tensor | None = None,
    ) -> Batch:
        """Build a batch of one without targets from normalised points and features of each."""
        normaliser, cloud = self.normaliser, torch.from_numpy(points)[None]
        design = np.zeros(0, np.float32) if parameters is None else normaliser.design(parameters)
        scale = normaliser.scale(parameters) if parameters and normaliser.powers else None
        return Batch(
            points=cloud,
            features=torch.from_numpy(features)[None],
            anchors=self.anchors.among(cloud) if anchors is None else anchors,
            query_points=torch.from_numpy(queries)[None],
            query_features=torch.from_numpy(query_features)[None],
            targets=torch.zeros(1, num_steps, 0, len(normaliser.channels)),
            parameters=torch.from_numpy(design)[None],
            scale=None if scale is None else torch.from_numpy(scale)[None],
            neighbours=None if edges is None else torch.from_numpy(edges)[None],
        )

    def check_case(self, case: StoredCase) -> None:
        """Raise InputError for a case with boundary kinds that the model does not know."""
        if tuple(case.patch_kinds) != self.normaliser.patch_kinds:
            raise InputError(
                f"case {case.id} has patch kinds {', '.join(case.patch_kinds)}, "
                f"the model knows {', '.join(self.normaliser.patch_kinds)}"
            )

    def check_parameters(
        self, values: Mapping[str, float] | None, space: Sequence[Parameter]
    ) -> Mapping[str, float]:
        """Return design parameters: wrong names or values raise, those outside the space warn."""
        known = {parameter.name: parameter for parameter in space}
        names = ", ".join(known)
        if values is None:
            raise InputError(f"give parameters={{...}}, the design parameters {names}")
        if not isinstance(values, Mapping) or not all(isinstance(name, str) for name in values):
            raise InputError(f"parameters map {names or 'no name'} to numbers")
        if set(values) != set(known):
            missing = [name for name in known if name not in values]
            found = {"unknown": sorted(set(values) - set(known)), "missing": missing}
            wrong = ", ".join(f"{word} {', '.join(of)[:200]}" for word, of in found.items() if of)
            raise InputError(f"parameters: {wrong}; {self.experiment.family} has {names}")
        for name, value in values.items():
            low, high, unit = known[name].low, known[name].high, known[name].unit
            if not isinstance(value, numbers.Real) or not np.isfinite(value):
                raise InputError(f"{name} = {value!r:.100} is not a finite number")
            trained_on = f"the model was trained on [{low:g}, {high:g}] {unit}"
            if low > 0 and value <= 0:
                raise InputError(f"{name} = {value:g} {unit} is not positive; {trained_on}")
            if not low <= value <= high:
                warn_caller(
                    f"{name} = {value:g} {unit} is outside the design space; {trained_on}, so the"
                    " prediction is extrapolated"
                )
        return values

    def check_points(
        self, points: Any, name: str, tolerance: float = BOUNDS_TOLERANCE
    ) -> np.ndarray:
        """Return (N, 3) m, of (N, 2) in 2D as well; warn of points outside the training domain."""
        dimension = self.normaliser.dimension
        values = as_numbers(points, name)
        if values.ndim == 2 and values.shape[1] == dimension:
            values = np.pad(values, ((0, 0), (0, 3 - dimension)))
        shape = (len(values) if values.ndim else 0, 3)
        values = check_array(values, shape, f"{name} (x, y, z in m)")
        if len(values) == 0:
            raise InputError(f"{name}: no points")
        lower, upper = (np.array(each) for each in (self.normaliser.lower, self.normaliser.upper))
        slack = tolerance * 2 * self.normaliser.length_scale
        beyond = (values < lower - slack) | (values > upper + slack)
        outside = beyond[:, :dimension].any(axis=1)
        if outside.any():
            warn_caller(
                f"{outside.sum()} of {len(values)} {name} lie outside the training domain,"
                f" {lower[:dimension].round(3).tolist()} to"
                f" {upper[:dimension].round(3).tolist()} m;"
                " predictions there are extrapolated"
            )
        return values

    def check_distance(self, field: Any, num_points: int, name: str) -> tuple[np.ndarray, ...]:
        """Check distance (N, K) and direction (N, K, 3)."""
        if not isinstance(field, tuple | list) or len(field) != 2:
            raise InputError(f"{name} is a pair: distances (N, K), and directions (N, K, 3)")
        kinds = self.normaliser.stored_kinds
        shape = (num_points, len(kinds))
        distance = check_array(field[0], shape, f"{name}[0] (to {', '.join(kinds)}, in m)")
        return distance, check_array(field[1], (*shape, 3), f"{name}[1] (unit vectors)")

    def check_given(self, given: Any, num_points: int, name: str) -> np.ndarray:
        """Return (N, G), the given channels: a mapping of fields (N, components), or (N,)."""
        channels = self.normaliser.given
        fields = dict.fromkeys(channel.field for channel in channels)
        if fields and (not isinstance(given, Mapping) or set(given) != set(fields)):
            raise InputError(
                f"{name} must map {', '.join(fields)} to values at each point: they are inputs"
            )
        columns = np.zeros((num_points, len(channels)))
        for number, channel in enumerate(channels):
            what, column = f"{name} {channel.field}", channel.column
            values = as_numbers(given[channel.field], what)
            values = values[:, None] if values.ndim == 1 else values
            check_columns(values, num_points, column + 1, what)
            columns[:, number] = check_array(values[:, column], (num_points,), what)
        return columns


def read_states(
    case: StoredCase,
    channels: Sequence[Channel],
    frames: slice = slice(None),
    cache: LocalCache | None = None,
) -> np.ndarray:
    """Read channels in their units: (T, N, C) of a case's snapshots, (N, C) of a steady case."""
    names = sorted({channel.field for channel in channels})
    if not names:
        return np.zeros((case.num_points, 0), np.float32)
    if cache is None:  # whole chunks, whatever the stride
        whole = slice(frames.start, frames.stop)
        stored = {name: np.asarray(case[name][whole])[:: frames.step] for name in names}
    else:
        stored = {name: array[frames] for name, array in cache.arrays(case, *names).items()}
    return np.stack([stored[channel.field][..., channel.column] for channel in channels], axis=-1)


def check_columns(values: np.ndarray, rows: int, columns: int, name: str) -> None:
    """Raise InputError unless the values are (rows, columns or more)."""
    if values.ndim != 2 or len(values) != rows or values.shape[1] < columns:
        raise InputError(f"{name} has shape {values.shape}, expected ({rows}, {columns} or more)")


def check_array(values: Any, shape: tuple[int, ...], name: str) -> np.ndarray:
    """Return the values as float64; raise InputError unless they have that shape and are finite."""
    array = as_numbers(values, name)
    if array.shape != shape:
        raise InputError(f"{name} has shape {array.shape}, expected {shape}")
    if not np.isfinite(array).all():
        raise InputError(f"{name} holds {(~np.isfinite(array)).sum()} values that are not finite")
    return array


def as_numbers(values: Any, name: str) -> np.ndarray:
    """Return the values as float64; raise InputError unless they are an array of numbers."""
    try:
        return np.asarray(values, dtype=np.float64)
    except (ValueError, TypeError, OverflowError) as error:
        raise InputError(f"{name} is no array of numbers with rows of the same length") from error


class NotFiniteError(InputError):
    """A prediction has values that are not finite."""


def check_finite(values: np.ndarray) -> np.ndarray:
    """Return the prediction; raise NotFiniteError where a value is not finite."""
    if not np.isfinite(values).all():
        raise NotFiniteError(
            "the prediction is not finite: a value of the input lies too far outside of what the"
            " model was trained on"
        )
    return values


_collected: ContextVar[list[str] | None] = ContextVar("collected", default=None)


@contextmanager
def collected_warnings() -> Iterator[list[str]]:
    """Collect the warnings of this thread or task alone, as Python's own context cannot."""
    messages: list[str] = []
    token = _collected.set(messages)
    try:
        yield messages
    finally:
        _collected.reset(token)


def warn_caller(message: str) -> None:
    """Warn at the first line outside this package, or into the list that collects warnings."""
    collected = _collected.get()
    if collected is not None:
        collected.append(message)
        return
    level, frame = 1, inspect.currentframe()
    while frame is not None and frame.f_globals.get("__name__", "").startswith("courant."):
        level, frame = level + 1, frame.f_back
    warnings.warn(message, stacklevel=level)
