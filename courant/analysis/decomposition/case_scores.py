"""Score the decomposition of a predicted case, beside controls of the same field.

Contributions are as many fields as there are anchors, so they are reduced for one part of the
cells at a time. Scores are of the last step of a rollout, or of the one field of a steady case.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np

from courant.analysis.decomposition import partition, stability
from courant.analysis.decomposition.anchor_fields import AnchorFields
from courant.analysis.decomposition.controls import (
    nearest_anchor_partition,
    pod_fields,
    random_partition,
)
from courant.analysis.decomposition.error_addresses import AddressSums, ErrorAddresses, address_sums
from courant.analysis.decomposition.locality import spacing
from courant.analysis.decomposition.scores import field_scores
from courant.data.trajectories import read_states
from courant.evaluation.metrics import ALL, ErrorSums
from courant.field_model import Partitions
from courant.prediction.surrogate import Surrogate
from simgen.store.access.stored_case import StoredCase

MAX_VALUES = 1 << 22
"""Numbers of contributions in memory at once, 16 MiB; computing them takes a few times as much"""
MAX_SNAPSHOTS = 256
"""Stored snapshots that POD is made from"""
RANDOM, NEAREST, POD = "random partition", "nearest-anchor partition", "POD"

Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class CaseScores:
    """The scores of one case's decomposition, and what they were computed from."""

    case: str
    scores: dict[str, float]
    fields: AnchorFields
    spacing_m: float
    controls: dict[str, AnchorFields] = field(default_factory=dict)
    control_scores: dict[str, dict[str, float]] = field(default_factory=dict)
    dominant: np.ndarray | None = None
    """The dominant anchor of each cell, (M,); None where the model has no weights"""
    temporal_variance: np.ndarray | None = None
    """v_k, (L,); None for one state"""
    addresses: ErrorAddresses | None = None
    """None where the model has no weights, or the case no solution at the time"""


@dataclass(frozen=True)
class _Part:
    """What is kept of one part of the cells."""

    fields: AnchorFields
    dominant: np.ndarray | None
    over_time: np.ndarray | None
    """Products of the first with the last step, as `_matched` has them; None for one step"""
    moments: np.ndarray | None
    """Of the steps; None for one"""
    with_other: np.ndarray | None
    addresses: AddressSums | None


@dataclass(frozen=True)
class _Prediction:
    """The last predicted state of a case, and its error, in standard deviations."""

    values: np.ndarray
    """(M, C), not centred"""
    errors: np.ndarray | None
    """(M, C); None where the case has no solution at the time"""
    nmae: float | None
    """In physical units, as evaluations have it"""


def score_case(
    surrogate: Surrogate,
    case: StoredCase,
    *,
    other: Surrogate | None = None,
    progress: Progress = lambda done, total: None,
) -> CaseScores:
    """Score the prediction that ends at the case's last snapshot (steady: the prediction).

    `other` is a second run, such as one of another seed, whose fields are matched with these.
    InputError for a model that does not decompose its predictions.
    """
    shown = _predict(surrogate, case)
    parts = list(_parts(surrogate, case, shown, other, progress))
    fields = AnchorFields.joined([part.fields for part in parts])
    domain = 2 * surrogate.normaliser.length_scale
    between = spacing(domain, fields.num_anchors)
    dominant = [part.dominant for part in parts if part.dominant is not None]
    labels = np.concatenate(dominant) if dominant else None
    over_time = [part.over_time for part in parts if part.over_time is not None]
    moments = [part.moments for part in parts if part.moments is not None]
    variance = partition.temporal_variance(np.sum(moments, axis=0)) if moments else None
    controls = _controls(surrogate, case, fields, shown)
    sums = [part.addresses for part in parts if part.addresses is not None]
    addresses = ErrorAddresses.joined(sums) if sums else None
    return CaseScores(
        case.id,
        {
            **({} if shown.nmae is None else {"nmae": shown.nmae}),
            **field_scores(fields, between),
            **_over_time(over_time, variance),
            **_contiguity(labels, fields, case),
            **_between_runs(parts),
            **({} if addresses is None else {"error_carried": addresses.carried()}),
        },
        fields,
        between,
        controls,
        {name: field_scores(each, between) for name, each in controls.items()},
        labels,
        variance,
        addresses,
    )


def volumes_of(case: StoredCase) -> np.ndarray:
    """Return the volumes of the case's cells (N,), ones where the dataset has none."""
    return case.volumes if case.dataset.schema.volumes else np.ones(case.num_points, np.float32)


def _predict(surrogate: Surrogate, case: StoredCase) -> _Prediction:
    start = surrogate.problem.shown_start(case)
    times = None if start is None else surrogate.times(start)
    truth = surrogate.problem.solution(case, None if times is None else float(times[-1]))
    last = surrogate.predict_last(case, start_s=start)
    std = np.asarray(surrogate.normaliser.at(case.parameters).std, np.float32)
    if truth is None:
        return _Prediction(last / std, None, None)
    sums = ErrorSums(surrogate.channels)
    sums.add(last[None], truth[None])
    return _Prediction(last / std, (last - truth) / std, sums.total(ALL)["nmae"])


def _parts(
    surrogate: Surrogate,
    case: StoredCase,
    shown: _Prediction,
    other: Surrogate | None,
    progress: Progress,
) -> Iterator[_Part]:
    start = surrogate.problem.shown_start(case)
    decomposed = surrogate.decomposition(case, start_s=start)
    points, volumes = case.points, volumes_of(case)
    anchors = None if decomposed.anchors is None else decomposed.anchors[0].detach().cpu().numpy()
    places = None if anchors is None else surrogate.places(anchors)
    size = max(1, MAX_VALUES // next(decomposed.chunks(1)).contributions.numel())
    steps = None if start is None else surrogate.problem.num_steps
    beside = (
        None
        if other is None
        else other.decomposition(case, start_s=start, steps=steps).chunks(size)
    )
    for part in decomposed.chunks(size):
        values = part.contributions[0].cpu().numpy()
        here = volumes[part.queries]
        labels, with_other, addresses = None, None, None
        if isinstance(part, Partitions):
            weights = part.weights[0, -1].mean(0).cpu().numpy()
            labels = partition.dominant_anchors(weights)
            if shown.errors is not None:
                errors = shown.errors[part.queries]
                addresses = address_sums(weights, errors, points[part.queries], here)
        if beside is not None:
            with_other = _matched(values[-1], next(beside).contributions[0, -1].cpu().numpy(), here)
        yield _Part(
            AnchorFields.of(values[-1], points[part.queries], here, places),
            labels,
            _matched(values[0], values[-1], here) if len(values) > 1 else None,
            partition.temporal_moments(values, here) if len(values) > 1 else None,
            with_other,
            addresses,
        )
        progress(part.queries.stop, len(points))


def _matched(first: np.ndarray, second: np.ndarray, volumes: np.ndarray) -> np.ndarray:
    """Return products of fields, with both energies in a further row and column: (K + 1, L + 1)."""
    found = np.zeros((len(first) + 1, len(second) + 1))
    found[:-1, :-1] = stability.products(first, second, volumes)
    found[:-1, -1] = np.square(first).sum(axis=-1) @ volumes
    found[-1, :-1] = np.square(second).sum(axis=-1) @ volumes
    return found


def _matching(parts: list[np.ndarray]) -> stability.Matching:
    summed = np.sum(parts, axis=0)
    return stability.match(summed[:-1, :-1], summed[:-1, -1], summed[-1, :-1])


def _over_time(parts: list[np.ndarray], variance: np.ndarray | None) -> dict[str, float]:
    if variance is None:
        return {}
    found = _matching(parts)
    known = variance[np.isfinite(variance)]
    return {
        "time_correlation": found.score,
        "time_kept": found.kept,
        **({"temporal_variance": float(np.median(known))} if len(known) else {}),
    }


def _between_runs(parts: list[_Part]) -> dict[str, float]:
    found = [part.with_other for part in parts if part.with_other is not None]
    return {"seed_correlation": _matching(found).score} if found else {}


def _contiguity(
    labels: np.ndarray | None, fields: AnchorFields, case: StoredCase
) -> dict[str, float]:
    if labels is None:
        return {}
    pairs = partition.neighbour_pairs(fields.points, case.dataset.schema.dimension)
    if not partition.is_connected(fields.volumes, pairs):
        return {}
    return {"contiguity": partition.contiguity(labels, fields.volumes, pairs)}


def _controls(
    surrogate: Surrogate, case: StoredCase, fields: AnchorFields, shown: _Prediction
) -> dict[str, AnchorFields]:
    """Return decompositions of the same field by chance, by place and by POD.

    POD is of the case's own snapshots, which favours it, and there is none of a steady case.
    """
    found = {RANDOM: random_partition(fields)}
    if (nearest := nearest_anchor_partition(fields)) is not None:
        found[NEAREST] = nearest
    start = surrogate.problem.start(case)
    if start is not None and case.time is not None:
        frames = np.flatnonzero(case.time >= start)
        stride = -(-len(frames) // MAX_SNAPSHOTS)
        chosen = slice(int(frames[0]), None, stride)
        states = read_states(case, surrogate.normaliser.channels, chosen)
        std = np.asarray(surrogate.normaliser.std, np.float32)
        found[POD] = pod_fields(
            states / std, shown.values, fields.points, fields.volumes, fields.num_anchors
        )
    return found
