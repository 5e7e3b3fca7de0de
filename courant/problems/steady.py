"""Steady problems: predict solved fields from what is known before the solve.

That is geometry, boundary conditions, given fields and design parameters. Inputs are made of the
keywords of `known_batch` alone, and `read_known` fills these without a solved value: of a stored
case's boundary fields it keeps the faces on which the field is a boundary condition, and zero on
all others, where the solved value of the cell would leak the answer. The paper's parameter counts
leave room for one feature per modelled channel; here it is that channel's prescribed value.

A sample is a whole case. A batch pads and masks its clouds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from courant.data.batch import READERS, Batch, Batches, BatchOrder, join_padded, num_bytes, spread
from courant.data.geometry import DistanceField, read_edges
from courant.data.normalisation import check_names
from courant.experiment import Kind, SteadyData
from courant.problems.problem import (
    FACES_TOLERANCE,
    Problem,
    Samples,
    Window,
    as_numbers,
    check_columns,
    read_states,
)
from simgen.design_space import Parameter
from simgen.errors import InputError
from simgen.point_cloud import point_tree

if TYPE_CHECKING:
    from simgen.store.read import Dataset, StoredCase

#: Face centres (B, 3) m, and what is prescribed there (B, C), zero where nothing is.
Prescribed = tuple[np.ndarray, np.ndarray]


class SteadyProblem(Problem):
    """A whole case: a window of one step with nothing known in time."""

    kind: ClassVar[Kind] = "steady"
    takes = ("parameters", "boundary", "distance", "given")
    data: SteadyData
    num_steps = 1
    input_steps = 0
    step_s = None

    @property
    def needs(self) -> tuple[str, ...]:
        parts = {
            "points": True,
            "parameters": bool(self.normaliser.parameters),
            "distance": bool(self.normaliser.stored_kinds),
            "boundary": self.normaliser.has_boundary,
            "given": bool(self.normaliser.given),
        }
        return tuple(name for name, is_needed in parts.items() if is_needed)

    def num_features(self) -> tuple[int, ...]:
        channels = len(self.normaliser.channels) if self.normaliser.has_boundary else 0
        if self.data.encoder == "boundary":
            return (channels,)
        known = channels + len(self.normaliser.given)
        distance = self.normaliser.num_distance_channels
        return (known + distance, known) if known + distance else (self.normaliser.dimension,)

    def check(self) -> None:
        if self.data.encoder == "boundary" and not self.normaliser.has_boundary:
            raise InputError(
                'data.encoder = "boundary", and the data have no boundary cloud; set it to "mesh"'
            )
        if self.data.prescribed and not self.normaliser.has_boundary:
            raise InputError("data.prescribed: the data have no boundary cloud; leave it out")
        fields = dict.fromkeys(channel.field for channel in self.normaliser.channels)
        check_names("data.prescribed: field", self.data.prescribed, fields)
        for kinds in self.data.prescribed.values():
            check_names("data.prescribed: patch kind", kinds, self.normaliser.patch_kinds)

    def training(self, dataset: Dataset, order: BatchOrder, device: torch.device) -> Batches:
        source = SteadySource(dataset, dataset.cases("train"), self)
        num_points = [dataset.records[case]["num_points"] for case in source.ids]
        # Clouds of all kinds grow with the mesh: the first case's bytes per cell are those of all.
        size = num_bytes(source.read(0).tensors.values()) / num_points[0] * sum(num_points)
        streamed = size > self.data.resident_gb * 1e9
        return SteadyBatches(source, order, device, streamed=streamed)

    def validation(self, dataset: Dataset, num: int, device: torch.device) -> Samples:
        # One case at a time: their clouds are large. Cases that were published later count as well.
        ids = dataset.cases("validation")
        chosen = [ids[n] for n in spread(torch.arange(len(ids)), num).tolist()]
        samples = SteadySource(dataset, chosen, self).read_all(device)
        return lambda: iter(samples)

    def prepare(self, space: Sequence[Parameter], points: np.ndarray, **parts: Any) -> Batch:
        self.check_parts(parts)
        given = parts.get("parameters") or (None if space else {})
        parameters = self.check_parameters(given, space)
        places = self.check_points(points, "points")
        field, kinds = parts.get("distance"), self.normaliser.stored_kinds
        if kinds:
            if field is None:
                raise InputError(f"give distance=(distance, direction) to {', '.join(kinds)}")
            field = self.check_distance(field, len(places), "distance")
        has_boundary = self.normaliser.has_boundary
        return self.known_batch(
            points=places,
            distance=field,
            prescribed=self._check_boundary(parts.get("boundary")) if has_boundary else None,
            parameters=parameters,
            given=self.check_given(parts.get("given"), len(places), "given"),
        )

    def case_inputs(self, case: StoredCase, start_s: float | None, steps: int | None) -> Batch:
        self.check_case(case)
        self.start(case, start_s)
        self.steps(steps)
        return self.known_batch(**self.read_known(case))

    def read_known(self, case: StoredCase) -> dict[str, Any]:
        """Return the known part of a stored case, as keywords of `known_batch`; nothing solved."""
        normaliser, prescribed = self.normaliser, None
        if normaliser.has_boundary:
            boundary = case.boundary
            names = {channel.field for channel in normaliser.channels} & set(self.data.prescribed)
            fields = {name: np.asarray(boundary[name][:]) for name in names}
            prescribed = self.keep_prescribed(boundary.points, boundary.patch, fields)
        return {
            "points": case.points,
            "distance": (case.distance, case.direction) if normaliser.stored_kinds else None,
            "prescribed": prescribed,
            "parameters": case.parameters,
            "given": read_states(case, normaliser.given),
            "edges": read_edges(case) if self.reads_edges else None,
        }

    def keep_prescribed(
        self, points: np.ndarray, patch: np.ndarray, fields: Mapping[str, np.ndarray]
    ) -> Prescribed:
        """Keep the prescribed values of the faces' `fields` (B, components), zero elsewhere."""
        values = np.zeros((len(points), len(self.normaliser.channels)))
        for number, channel in enumerate(self.normaliser.channels):
            on = self._is_prescribed(channel.field, patch)
            if on.any():
                values[on, number] = fields[channel.field][on, channel.column]
        return points, values

    def _is_prescribed(self, field: str, patch: np.ndarray) -> np.ndarray:
        kinds = self.data.prescribed.get(field, ())
        return np.isin(patch, [self.normaliser.patch_kinds.index(kind) for kind in kinds])

    def known_batch(
        self,
        *,
        points: np.ndarray,
        distance: DistanceField | None,
        prescribed: Prescribed | None,
        parameters: Mapping[str, float],
        given: np.ndarray,
        edges: np.ndarray | None = None,
        anchors: Tensor | None = None,
    ) -> Batch:
        """Normalise what is known of a case into a batch of one without targets.

        The encoder reads the boundary cloud, or the N points with what is prescribed at the
        nearest face. A cloud without any feature has its coordinates as features. points (N, 3) m;
        given (N, G); edges (N, k) of `read_edges`; anchors (1, L, 3), None to choose them.
        """
        normaliser = self.normaliser
        places = normaliser.points(points)
        at_points = self.features_at(points, distance, given)
        cloud, features = places, at_points
        if prescribed is not None:
            faces, values = prescribed
            conditions = normaliser.standardise(values)
            if self.data.encoder == "boundary":
                cloud, features = normaliser.points(faces), conditions
            else:
                nearest = point_tree(faces).query(points)[1]
                features = np.concatenate([conditions[nearest], at_points], axis=1)
        if not features.shape[1]:
            features = cloud[:, : normaliser.dimension]
        return self.sample(
            cloud, features, places, at_points, parameters, edges=edges, anchors=anchors
        )

    def _check_boundary(self, boundary: Any) -> Prescribed:
        """Check a boundary cloud: a stored case's, or a mapping with its parts.

        points (B, 3) m; patch (B,), names of patch kinds or their numbers; and the fields (B,
        components), which matter only on the faces where they are prescribed.
        """
        columns: dict[str, int] = {}
        for channel in self.normaliser.channels:
            if channel.field in self.data.prescribed:
                columns[channel.field] = max(columns.get(channel.field, 0), 1 + channel.column)
        needed = ["points", "patch", *columns]
        if hasattr(boundary, "points") and hasattr(boundary, "patch"):
            stored = {name: boundary[name][:] for name in columns}
            boundary = {"points": boundary.points, "patch": boundary.patch, **stored}
        missing = [n for n in needed if not isinstance(boundary, Mapping) or n not in boundary]
        if missing:
            raise InputError(
                f"boundary has no {', '.join(missing)}; give boundary=case.boundary of a stored"
                f" case, or a mapping with {', '.join(needed)} of the boundary's faces"
            )
        points = self.check_points(boundary["points"], "boundary points", FACES_TOLERANCE)
        kinds = self.normaliser.patch_kinds
        known: dict[Any, int] = {key: n for n, kind in enumerate(kinds) for key in (kind, n)}
        try:
            patch = np.array([known.get(of, -1) for of in np.asarray(boundary["patch"]).tolist()])
        except (TypeError, ValueError):  # no list, or lists in one
            patch = np.zeros(0)
        if patch.shape != (len(points),) or (patch < 0).any():
            raise InputError(
                f"boundary patch must hold a patch kind ({', '.join(kinds)}) or its number from 0"
                f" to {len(kinds) - 1} for each of {len(points)} faces"
            )
        fields = {}
        for name, num_columns in columns.items():
            fields[name] = values = as_numbers(boundary[name], f"boundary {name}")
            of, on = " or ".join(self.data.prescribed[name]), self._is_prescribed(name, patch)
            if not on.any():
                raise InputError(f"boundary has no face of kind {of}, where {name} is prescribed")
            check_columns(values, len(points), num_columns, f"boundary {name}")
            if not np.isfinite(values[on]).all():
                raise InputError(f"boundary {name} is not finite on faces of kind {of}")
        return self.keep_prescribed(points, patch, fields)

    def windows(self, case: StoredCase) -> Iterator[Window]:
        yield Window(None, None, self.solution(case, None)[None])

    def solution(self, case: StoredCase, at_s: float | None) -> np.ndarray:
        return read_states(case, self.normaliser.channels)


class SteadySource:
    """The cases of a split as samples; safe to share between threads."""

    def __init__(self, dataset: Dataset, ids: Sequence[str], problem: SteadyProblem) -> None:
        self.ids, self._dataset, self.problem = tuple(ids), dataset, problem
        self._anchors: dict[int, Tensor] = {}

    def read(self, number: int) -> Batch:
        """Read case `number` as a batch of one with every point; its anchors are sampled once."""
        case = self._dataset[self.ids[number]]
        known = self.problem.read_known(case)
        batch = self.problem.known_batch(**known, anchors=self._anchors.get(number))
        self._anchors[number] = batch.anchors
        normaliser = self.problem.normaliser.at(case.parameters)
        targets = normaliser.standardise(read_states(case, normaliser.channels))
        return replace(batch, targets=torch.from_numpy(targets)[None, None])

    def read_all(self, device: torch.device) -> list[Batch]:
        with ThreadPoolExecutor(READERS) as readers:
            read = readers.map(self.read, range(len(self.ids)))
            return [batch.map(lambda value: value.to(device)) for batch in read]


class SteadyBatches(Batches):
    """Training batches of steady cases; a sample is the number of a case."""

    def __init__(
        self, source: SteadySource, order: BatchOrder, device: torch.device, streamed: bool = False
    ) -> None:
        super().__init__(order, device, streamed)
        self.source = source
        self.num_cases = len(source.ids)
        self.samples = torch.arange(self.num_cases)
        self._resident = None if streamed else source.read_all(device)

    def describe(self, samples: Tensor) -> list[dict[str, object]]:
        return [{"case": self.source.ids[number]} for number in samples.tolist()]

    def make(self, samples: Tensor, generator: torch.Generator) -> Batch:
        seeds = torch.randint(2**62, (len(samples),), generator=generator)
        shard = self.order.shard
        read = self._resident.__getitem__ if self._resident else self.source.read
        drawn = [
            draw(read(number), self.source.problem.data, torch.Generator().manual_seed(seed))
            for number, seed in zip(samples[shard].tolist(), seeds[shard].tolist(), strict=True)
        ]
        return collate(drawn)


def draw(sample: Batch, config: SteadyData, generator: torch.Generator) -> Batch:
    """Choose random encoder points and queries of a batch of one, without repeats."""

    def choose(points: Tensor, num: int | None) -> Callable[[Tensor], Tensor]:
        """Return a function that takes the same `num` rows of every (1, N, c)."""
        if num is None or num >= points.shape[1]:
            return lambda values: values
        chosen = torch.randperm(points.shape[1], generator=generator)[:num]
        on_device = chosen.to(points.device, non_blocking=True)
        return lambda values: values[:, on_device]

    cloud = choose(sample.points, config.points_per_sample)
    queries = choose(sample.query_points, config.queries_per_sample)
    return replace(
        sample,
        points=cloud(sample.points),
        features=cloud(sample.features),
        query_points=queries(sample.query_points),
        query_features=queries(sample.query_features),
        targets=queries(sample.targets[:, 0])[:, None],
        neighbours=None if config.points_per_sample is not None else sample.neighbours,
    )


def collate(samples: Sequence[Batch]) -> Batch:
    """Join batches of one, padding clouds with zeros to the longest, and masking the padding."""
    first, *_ = samples
    if len(samples) == 1:
        return first
    joined = {
        name: join_padded([each.tensors[name] for each in samples], fill)
        for name, fill in ((name, -1 if name == "neighbours" else 0) for name in first.tensors)
    }
    return replace(
        first,
        **joined,
        mask=_mask([sample.points for sample in samples]),
        query_mask=_mask([sample.query_points for sample in samples]),
    )


def _mask(clouds: Sequence[Tensor]) -> Tensor | None:
    """Return (B, max n), True at real points; None where all have the same number."""
    lengths = torch.tensor([cloud.shape[1] for cloud in clouds])
    most, device = int(lengths.max()), clouds[0].device
    if bool((lengths == most).all()):
        return None
    return torch.arange(most, device=device) < lengths.to(device, non_blocking=True)[:, None]
