"""Steady problems: predict solved fields from what is known before the solve.

That is geometry, boundary conditions, given fields and design parameters. Inputs are made of the
keywords of `known_batch` alone, and `read_known` fills these without a solved value: of a stored
case's boundary fields it keeps the faces on which the field is a boundary condition, and zero on
all others. Otherwise two things would leak the answer: a face without a condition of its own (zero
gradient, no slip in OpenFOAM's files) carries its cell's solved value, and so does an outlet's
velocity.

The paper does not say what the features of the boundary cloud hold; its parameter counts leave room
for one number per modelled channel. Here they are that channel's prescribed value: the inlet's
velocity profile, the surface speed of rotating walls, zero elsewhere, standardised as the field is.

A sample is a whole case. A batch pads and masks its clouds. The order of cases depends on (seed,
epoch) alone, the points drawn from each on (seed, epoch, batch) alone, as for windows. So a run
resumes exactly, and workers share a batch as one worker would see it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, cast

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import pad

from courant.data.batch import Batch
from courant.data.batches import READERS, Batches, BatchOrder, read_ahead, spread
from courant.data.geometry import AnchorChoice, DistanceField, read_edges
from courant.data.normalisation import Channel, Normaliser
from courant.data_config import SteadyData
from courant.experiment import Experiment, Kind
from courant.problems.problem import (
    Problem,
    Samples,
    Space,
    Window,
    as_numbers,
    check_distance,
    check_given,
    check_parameters,
    check_points,
)
from simgen.errors import InputError

if TYPE_CHECKING:
    from simgen.store.read import Dataset, StoredCase

Prescribed = tuple[np.ndarray, np.ndarray]
"""The boundary's face centres (B, 3) m, and the modelled channels there (B, C) in their units: zero
where nothing is prescribed
"""


def read_known(case: StoredCase, normaliser: Normaliser, config: SteadyData) -> dict[str, Any]:
    """Return the known part of a stored case, as keywords of `known_batch`.

    Solved fields are not read, boundary fields only where they are prescribed.
    """
    prescribed = None
    if normaliser.has_boundary:
        boundary = case.boundary
        names = {channel.field for channel in normaliser.channels} & set(config.prescribed)
        fields = {name: np.asarray(boundary[name][:]) for name in names}
        prescribed = keep_prescribed(boundary.points, boundary.patch, fields, normaliser, config)
    return {
        "points": case.points,
        "distance": (case.distance, case.direction) if normaliser.stored_kinds else None,
        "prescribed": prescribed,
        "parameters": case.parameters,
        "given": read_channels(case, normaliser.given),
    }


def read_channels(case: StoredCase, channels: Sequence[Channel]) -> np.ndarray:
    """Read (N, C): channels of a steady case, in their units."""
    stored = {name: np.asarray(case[name][:]) for name in {each.field for each in channels}}
    columns = [stored[channel.field][..., channel.column] for channel in channels]
    return np.stack(columns, axis=-1) if columns else np.zeros((case.num_points, 0), np.float32)


def keep_prescribed(
    points: np.ndarray,
    patch: np.ndarray,
    fields: Mapping[str, np.ndarray],
    normaliser: Normaliser,
    config: SteadyData,
) -> Prescribed:
    """Keep the prescribed values of the faces' `fields` (B, components), zero elsewhere.

    `patch` (B,) are numbers of the family's patch kinds.
    """
    values = np.zeros((len(points), len(normaliser.channels)))
    for number, channel in enumerate(normaliser.channels):
        kinds = [
            normaliser.patch_kinds.index(kind) for kind in config.prescribed.get(channel.field, ())
        ]
        given = np.isin(patch, kinds)
        if given.any():
            values[given, number] = fields[channel.field][given, channel.column]
    return points, values


def known_batch(
    normaliser: Normaliser,
    config: SteadyData,
    anchors: AnchorChoice | Tensor,
    *,
    points: np.ndarray,
    distance: DistanceField | None,
    prescribed: Prescribed | None,
    parameters: Mapping[str, float],
    given: np.ndarray,
    edges: np.ndarray | None = None,
) -> Batch:
    """Normalise what is known of a case into a batch of one, whose targets are empty.

    The encoder reads the boundary cloud, or the N points with their distance field. In the second
    case each point has what is prescribed at its nearest boundary face, the condition that acts on
    it most directly. A cloud without any other feature has its coordinates as features.

    points (N, 3) m, cells or other query points; distance to every stored patch kind, None in data
    without one; prescribed None in data without a boundary cloud; given (N, G), the given channels;
    edges (N, k) of `read_edges`; anchors (1, L, 3), or how they are chosen
    among the encoder's points.
    """
    places = normaliser.points(points)
    at_points = np.concatenate(
        [normaliser.standardise_given(given), normaliser.distance_channels(distance, len(points))],
        axis=1,
    )
    cloud, features = places, at_points
    if prescribed is not None:
        faces, values = prescribed
        conditions = normaliser.standardise(values)
        if config.encoder == "boundary":
            cloud, features = normaliser.points(faces), conditions
        else:
            from scipy.spatial import cKDTree  # half a second, for boundaries alone

            nearest = cKDTree(faces).query(points)[1]
            features = np.concatenate([conditions[nearest], at_points], axis=1)
    if not features.shape[1]:
        features = cloud[:, : normaliser.dimension]
    encoded, queries = torch.from_numpy(cloud)[None], torch.from_numpy(places)[None]
    scale = normaliser.scale(parameters) if normaliser.powers else None
    return Batch(
        points=encoded,
        features=torch.from_numpy(features)[None],
        mask=None,
        anchors=anchors if isinstance(anchors, Tensor) else anchors.among(encoded),
        query_points=queries,
        query_features=torch.from_numpy(at_points)[None],
        query_mask=None,
        targets=torch.zeros(1, 1, 0, len(normaliser.channels)),
        parameters=torch.from_numpy(normaliser.design(parameters))[None],
        scale=None if scale is None else torch.from_numpy(scale)[None],
        neighbours=None if edges is None else torch.from_numpy(edges)[None],
    )


def check_prescribed(
    prescribed: Mapping[str, Sequence[str]], channels: Sequence[Channel], patch_kinds: Sequence[str]
) -> None:
    """Raise InputError for a field that is not modelled, or an unknown patch kind."""
    fields = list(dict.fromkeys(channel.field for channel in channels))
    for field, kinds in prescribed.items():
        if field not in fields:
            raise InputError(
                f"data.prescribed: {field} is not modelled; choose of {', '.join(fields)}"
            )
        unknown = [kind for kind in kinds if kind not in patch_kinds]
        if unknown:
            raise InputError(
                f"data.prescribed: no patch kind {', '.join(unknown)}; choose of"
                f" {', '.join(patch_kinds)}"
            )


class SteadySource:
    """The cases of a split as samples; safe to share between threads."""

    def __init__(
        self,
        dataset: Dataset,
        ids: Sequence[str],
        normaliser: Normaliser,
        config: SteadyData,
        anchors: AnchorChoice,
        with_edges: bool = False,
    ) -> None:
        if not ids:
            raise InputError(f"dataset {dataset.url} {dataset.version}: no cases to read")
        self.ids = tuple(ids)
        self._dataset = dataset
        self._normaliser = normaliser
        self._config = config
        self._choice, self._with_edges = anchors, with_edges
        self._anchors: dict[int, Tensor] = {}

    def read(self, number: int) -> Batch:
        """Read case `number` of `ids` as a batch of one with every point of its clouds.

        Its anchors are sampled once.
        """
        case = self._dataset[self.ids[number]]
        batch = known_batch(
            self._normaliser,
            self._config,
            self._anchors.get(number, self._choice),
            **read_known(case, self._normaliser, self._config),
            edges=read_edges(case) if self._with_edges else None,
        )
        self._anchors[number] = batch.anchors
        normaliser = self._normaliser.at(case.parameters)
        targets = normaliser.standardise(read_solution(case, normaliser))
        return replace(batch, targets=torch.from_numpy(targets)[None, None])

    def read_all(self, device: torch.device | str) -> list[Batch]:
        with ThreadPoolExecutor(READERS) as readers:
            read = readers.map(self.read, range(len(self.ids)))
            return [batch.map(lambda value: value.to(device)) for batch in read]


def read_solution(case: StoredCase, normaliser: Normaliser) -> np.ndarray:
    """Read (N, C): the modelled channels of a solved case, in their units."""
    return read_channels(case, normaliser.channels)


class SteadyBatches:
    """Provide training batches of steady cases, resident on the device or read ahead by threads."""

    def __init__(
        self,
        source: SteadySource,
        config: SteadyData,
        order: BatchOrder,
        device: torch.device | str = "cpu",
        *,
        resident: bool = True,
    ) -> None:
        self.source = source
        self.config = config
        self.order = order
        self.device = torch.device(device)
        self._resident = source.read_all(device) if resident else None

    @property
    def num_cases(self) -> int:
        return len(self.source.ids)

    num_samples = num_cases

    @property
    def num_batches(self) -> int:
        return self.order.num_batches(self.num_cases)

    @property
    def num_bytes(self) -> int:
        return sum(sample.num_bytes for sample in self._resident or ())

    def describe(self, samples: Tensor) -> list[dict[str, object]]:
        return [{"case": self.source.ids[number]} for number in samples.tolist()]

    def epoch(self, epoch: int, begin: int = 0) -> Iterator[tuple[Tensor, Batch]]:
        """Yield the batches of an epoch from batch `begin` on.

        Each comes with the numbers (B,) of the whole batch's cases, and this worker's part of it.
        """
        jobs = (
            partial(self._make, epoch, index, chosen)
            for index, chosen in enumerate(self.order.epoch(self.num_cases, epoch))
            if index >= begin
        )
        batches = (job() for job in jobs) if self._resident else read_ahead(jobs)
        for samples, batch in batches:
            yield samples, batch.map(lambda value: value.to(self.device, non_blocking=True))

    def _make(self, epoch: int, index: int, chosen: Tensor) -> tuple[Tensor, Batch]:
        # A seed for every sample of the whole batch: its points are the same however many workers
        # share it.
        seeds = torch.randint(2**62, (len(chosen),), generator=self.order.points(epoch, index))
        shard = self.order.shard
        read = self._resident.__getitem__ if self._resident else self.source.read
        drawn = [
            draw(read(number), self.config, torch.Generator().manual_seed(seed))
            for number, seed in zip(chosen[shard].tolist(), seeds[shard].tolist(), strict=True)
        ]
        batch = collate(drawn)
        on_gpu = self.device.type == "cuda" and not self._resident
        return chosen, batch.map(Tensor.pin_memory) if on_gpu else batch


def draw(sample: Batch, config: SteadyData, generator: torch.Generator) -> Batch:
    """Choose random points of a batch of one, without repeats; all where None.

    Encoder points and queries are drawn separately.
    """
    cloud = _choose(sample.points, config.points_per_sample, generator)
    queries = _choose(sample.query_points, config.queries_per_sample, generator)
    return replace(
        sample,
        points=cloud(sample.points),
        features=cloud(sample.features),
        query_points=queries(sample.query_points),
        query_features=queries(sample.query_features),
        targets=queries(sample.targets[:, 0])[:, None],
        neighbours=None if config.points_per_sample is not None else sample.neighbours,
    )


def _choose(
    points: Tensor, num: int | None, generator: torch.Generator
) -> Callable[[Tensor], Tensor]:
    """Return a function that takes the same `num` rows of every (1, N, c)."""
    if num is None or num >= points.shape[1]:
        return lambda values: values
    chosen = torch.randperm(points.shape[1], generator=generator)[:num]
    on_device = chosen.to(points.device, non_blocking=True)
    return lambda values: values[:, on_device]


def collate(samples: Sequence[Batch]) -> Batch:
    """Join batches of one into one batch, padding clouds with zeros to the longest.

    Clouds are masked where they differ in length.
    """
    if len(samples) == 1:
        return samples[0]
    scales = [sample.scale for sample in samples if sample.scale is not None]
    edges = [sample.neighbours for sample in samples if sample.neighbours is not None]
    return Batch(
        points=_stack([sample.points for sample in samples]),
        features=_stack([sample.features for sample in samples]),
        mask=_mask([sample.points for sample in samples]),
        anchors=torch.cat([sample.anchors for sample in samples]),
        query_points=_stack([sample.query_points for sample in samples]),
        query_features=_stack([sample.query_features for sample in samples]),
        query_mask=_mask([sample.query_points for sample in samples]),
        targets=_stack([sample.targets for sample in samples]),
        parameters=torch.cat([sample.parameters for sample in samples]),
        scale=torch.cat(scales) if scales else None,
        neighbours=_stack_edges(edges) if edges else None,
    )


def _stack(values: Sequence[Tensor]) -> Tensor:
    """Stack (1, ..., n_i, c) arrays to (B, ..., max n, c)."""
    most = max(value.shape[-2] for value in values)
    return torch.cat([pad(value, (0, 0, 0, most - value.shape[-2])) for value in values])


def _stack_edges(lists: Sequence[Tensor]) -> Tensor:
    """Stack neighbour lists (1, n_i, k_i) to (B, max n, max k), with -1 where there is none."""
    most, width = (max(each.shape[axis] for each in lists) for axis in (1, 2))
    return torch.cat(
        [pad(each, (0, width - each.shape[2], 0, most - each.shape[1]), value=-1) for each in lists]
    )


def _mask(clouds: Sequence[Tensor]) -> Tensor | None:
    """Return (B, max n), True at real points; None where all have the same number."""
    lengths = torch.tensor([cloud.shape[1] for cloud in clouds])
    most, device = int(lengths.max()), clouds[0].device
    if bool((lengths == most).all()):
        return None
    return torch.arange(most, device=device) < lengths.to(device, non_blocking=True)[:, None]


def load_steady_batches(
    dataset: Dataset,
    normaliser: Normaliser,
    config: SteadyData,
    order: BatchOrder,
    anchors: AnchorChoice,
    device: torch.device | str = "cpu",
    with_edges: bool = False,
) -> SteadyBatches:
    """Return training batches on the device, resident or streamed.

    They are resident if the training split fits into `config.resident_gb`.
    """
    ids = dataset.cases("train")
    source = SteadySource(dataset, ids, normaliser, config, anchors, with_edges)
    num_points = dataset.design.loc[ids, "num_points"]
    # Clouds of all kinds grow with the mesh, so the first case's bytes per cell represent all
    # cases.
    size = source.read(0).num_bytes / num_points.iloc[0] * num_points.sum()
    return SteadyBatches(
        source, config, order, device, resident=bool(size <= config.resident_gb * 1e9)
    )


def load_steady_samples(
    dataset: Dataset,
    split: str,
    normaliser: Normaliser,
    config: SteadyData,
    num: int,
    anchors: AnchorChoice,
    device: torch.device | str = "cpu",
    with_edges: bool = False,
) -> list[Batch]:
    """Load at most `num` cases of a split on the device, with every point.

    Spread over the order in which they were published: later ones count as well.
    """
    ids = dataset.cases(split)
    chosen = [ids[n] for n in spread(torch.arange(len(ids)), num).tolist()]
    source = SteadySource(dataset, chosen, normaliser, config, anchors, with_edges)
    return source.read_all(device)


def check_boundary(given: Any, normaliser: Normaliser, config: SteadyData) -> Prescribed:
    """Check a boundary cloud: points (B, 3) m, patch (B,) and the prescribed fields.

    It is a stored case's `boundary`, or a mapping. `patch` holds names of patch kinds or their
    numbers in the family's order. A field (B, components) matters only on the faces where it is
    prescribed; its other values are ignored.
    """
    fields = {
        channel.field: channel
        for channel in normaliser.channels
        if channel.field in config.prescribed
    }
    needed = ["points", "patch", *fields]
    if given is None:
        raise InputError(
            f"give boundary=case.boundary of a stored case, or a mapping with {', '.join(needed)}"
            " of the boundary's faces"
        )
    is_mapping = isinstance(given, Mapping)
    if not is_mapping and not (hasattr(given, "points") and hasattr(given, "patch")):
        raise InputError(
            f"boundary is a {type(given).__name__}; give case.boundary of a stored case, or a"
            f" mapping with {', '.join(needed)} of the boundary's faces"
        )
    if is_mapping and (missing := [name for name in needed if name not in given]):
        raise InputError(f"boundary has no {', '.join(missing)}; it needs {', '.join(needed)}")
    points = check_points(
        given["points"] if is_mapping else given.points, "boundary points", normaliser
    )
    patch = _patch_numbers(
        given["patch"] if is_mapping else given.patch, len(points), normaliser.patch_kinds
    )
    # A stored field is read here, when it is indexed.
    values = {
        name: as_numbers(given[name] if is_mapping else given[name][:], f"boundary {name}")
        for name in fields
    }
    for name in fields:
        kinds = config.prescribed[name]
        on = np.isin(patch, [normaliser.patch_kinds.index(kind) for kind in kinds])
        if not on.any():
            raise InputError(
                f"boundary has no face of kind {' or '.join(kinds)}, where {name} is prescribed"
            )
        columns = 1 + max(
            channel.column for channel in normaliser.channels if channel.field == name
        )
        if (
            values[name].ndim != 2
            or len(values[name]) != len(points)
            or values[name].shape[1] < columns
        ):
            raise InputError(
                f"boundary {name} has shape {values[name].shape}, expected ({len(points)},"
                f" {columns} or more)"
            )
        if not np.isfinite(values[name][on]).all():
            raise InputError(
                f"boundary {name} holds values that are not finite on faces of kind"
                f" {' or '.join(kinds)}"
            )
    return keep_prescribed(points, patch, values, normaliser, config)


def _patch_numbers(given: Any, num_faces: int, kinds: Sequence[str]) -> np.ndarray:
    """Return (B,) numbers of patch kinds from numbers or names."""
    if isinstance(given, str) or not isinstance(given, Sequence | np.ndarray):
        raise InputError("boundary patch is no list of names or numbers")
    if len(given) != num_faces:
        raise InputError(f"boundary patch has {len(given)} values, expected {num_faces}")
    # Not by an array of the names: it takes the memory of the longest for each of them.
    if isinstance(given, np.ndarray):
        has_names = given.dtype.kind in "US"
    else:
        has_names = any(isinstance(kind, str) for kind in given)
    if has_names:
        numbers = {kind: number for number, kind in enumerate(kinds)}
        unknown = sorted(
            {str(kind)[:50] for kind in given if not isinstance(kind, str) or kind not in numbers}
        )
        if unknown:
            raise InputError(
                f"boundary: no patch kind {', '.join(unknown[:5])}; choose of {', '.join(kinds)}"
            )
        return np.array([numbers[kind] for kind in given])
    try:
        patch = np.asarray(given)
    except ValueError as error:
        raise InputError("boundary patch is no list of names or numbers") from error
    if patch.shape != (num_faces,):
        raise InputError(f"boundary patch has shape {patch.shape}, expected ({num_faces},)")
    if patch.dtype.kind not in "iu" or not ((patch >= 0) & (patch < len(kinds))).all():
        raise InputError(
            f"boundary patch must hold names ({', '.join(kinds)}) or whole numbers from 0 to"
            f" {len(kinds) - 1}"
        )
    return patch


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
        return lambda: iter(samples)

    def prepare(self, space: Space, points: np.ndarray, **parts: Any) -> Batch:
        self.check_parts(parts)
        if parts.get("parameters") is None and space.parameters:
            raise InputError(f"give parameters={{...}}, the design parameters {space.names}")
        parameters = parts.get("parameters") or {}
        check_parameters(parameters, space.parameters, space.family)
        places = check_points(points, "points", self.normaliser)
        field = self._distance(parts.get("distance"), len(places))
        prescribed = None
        if self.normaliser.has_boundary:
            prescribed = check_boundary(parts.get("boundary"), self.normaliser, self.data)
        return known_batch(
            self.normaliser,
            self.data,
            self.anchors,
            points=places,
            distance=field,
            prescribed=prescribed,
            parameters=parameters,
            given=check_given(parts.get("given"), len(places), self.normaliser, "given"),
        )

    def _distance(self, given: DistanceField | None, num_points: int) -> DistanceField | None:
        kinds = self.normaliser.stored_kinds
        if not kinds:
            return None
        if given is None:
            raise InputError(
                f"give distance=(distance, direction) at the points, to {', '.join(kinds)}, as a"
                " stored case has them"
            )
        return check_distance(given, num_points, kinds, "distance")

    def case_inputs(
        self, case: StoredCase, start_s: float | None, steps: int | None = None
    ) -> Batch:
        self.check_case(case)
        self.start(case, start_s)
        self.steps(steps)
        return known_batch(
            self.normaliser,
            self.data,
            self.anchors,
            **read_known(case, self.normaliser, self.data),
            edges=read_edges(case) if self.reads_edges else None,
        )

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
