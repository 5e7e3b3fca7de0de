"""Score the decomposition of a predicted case, beside controls of the same field.

Contributions are as many fields as there are anchors, so they are reduced for one part of the
cells at a time. Scores are of the last step of a rollout, or of the one field of a steady case.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

import numpy as np

from courant.analysis.decomposition import partition, stability, vortices
from courant.analysis.decomposition.anchor_fields import AnchorFields
from courant.analysis.decomposition.case_controls import case_controls
from courant.analysis.decomposition.error_addresses import AddressSums, ErrorAddresses, address_sums
from courant.analysis.decomposition.locality import spacing
from courant.analysis.decomposition.neighbouring import carried_cells
from courant.analysis.decomposition.scores import TOP, field_scores, place_scores
from courant.evaluation.metrics import ALL, ErrorSums
from courant.evaluation.reduced_order import TrainingFields
from courant.field_model import Contributions, FieldDecomposition, MovesAnchors, Partitions
from courant.prediction.surrogate import Surrogate
from simgen.store.read import StoredCase

MAX_VALUES = 1 << 22
"""Numbers of contributions in memory at once, 16 MiB; computing them takes a few times as much"""

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
    starts: np.ndarray | None
    """Where the anchors start, (L, 3) m; None where they are there still, or nowhere"""
    dominant: np.ndarray | None
    over_time: np.ndarray | None
    """Products of the first with the last step; None for one step"""
    moments: np.ndarray | None
    """Of the steps; None for one"""
    motion: np.ndarray | None
    """Of the steps, as `vortices` has it; None for one"""
    with_other: np.ndarray | None
    with_neighbour: np.ndarray | None
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
    neighbour: StoredCase | None = None,
    training: Callable[[], TrainingFields] | None = None,
    progress: Progress = lambda done, total: None,
) -> CaseScores:
    """Score the prediction that ends at the case's last snapshot (steady: the prediction).

    `other` is a second run, such as one of another seed, whose fields are matched with these, and
    `neighbour` a case of another design, whose fields are carried over to be matched. `training`
    reads the training cases, of which the POD of a steady case is made; without it there is none.
    InputError for a model that does not decompose its predictions.
    """
    shown = _predict(surrogate, case)
    parts = list(_parts(surrogate, case, shown, other, neighbour, progress))
    fields = AnchorFields.joined([part.fields for part in parts])
    domain = 2 * surrogate.normaliser.length_scale
    between = spacing(domain, fields.num_anchors)
    dominant = [part.dominant for part in parts if part.dominant is not None]
    labels = np.concatenate(dominant) if dominant else None
    over_time = [part.over_time for part in parts if part.over_time is not None]
    moments = [part.moments for part in parts if part.moments is not None]
    variance = partition.temporal_variance(np.sum(moments, axis=0)) if moments else None
    controls = case_controls(surrogate, case, fields, shown.values, training)
    sums = [part.addresses for part in parts if part.addresses is not None]
    addresses = ErrorAddresses.joined(sums) if sums else None
    return CaseScores(
        case.id,
        {
            **({} if shown.nmae is None else {"nmae": shown.nmae}),
            **field_scores(fields, between),
            **_at_starts(fields, parts[0].starts, between),
            **_over_time(over_time, variance),
            **_contiguity(labels, fields, case),
            **_between(parts),
            **_following(surrogate, case, parts, fields, between),
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
    neighbour: StoredCase | None,
    progress: Progress,
) -> Iterator[_Part]:
    start = surrogate.problem.shown_start(case)
    decomposed = surrogate.decomposition(case, start_s=start)
    points, volumes = case.points, volumes_of(case)
    starts, places = _anchor_places(surrogate, decomposed)
    size = max(1, MAX_VALUES // next(decomposed.chunks(1)).contributions.numel())
    steps = None if start is None else surrogate.problem.num_steps
    beside = (
        None
        if other is None
        else other.decomposition(case, start_s=start, steps=steps).chunks(size)
    )
    carried = None if neighbour is None else _carried(surrogate, neighbour, points, size)
    for part in decomposed.chunks(size):
        values = part.contributions[0].cpu().numpy()
        here = volumes[part.queries]
        labels, with_other, with_neighbour, addresses = None, None, None, None
        if isinstance(part, Partitions):
            weights = part.weights[0, -1].mean(0).cpu().numpy()
            labels = partition.dominant_anchors(weights)
            if shown.errors is not None:
                errors = shown.errors[part.queries]
                addresses = address_sums(weights, errors, points[part.queries], here)
        if beside is not None:
            with_other = stability.product_sums(
                values[-1], next(beside).contributions[0, -1].cpu().numpy(), here
            )
        if carried is not None:
            its = next(carried).contributions[0, -1].cpu().numpy()
            with_neighbour = stability.product_sums(values[-1], its, here)
        yield _Part(
            AnchorFields.of(values[-1], points[part.queries], here, places),
            starts,
            labels,
            stability.product_sums(values[0], values[-1], here) if len(values) > 1 else None,
            partition.temporal_moments(values, here) if len(values) > 1 else None,
            vortices.motion_sums(values, points[part.queries], here) if len(values) > 1 else None,
            with_other,
            with_neighbour,
            addresses,
        )
        progress(part.queries.stop, len(points))


def _anchor_places(
    surrogate: Surrogate, decomposed: FieldDecomposition
) -> tuple[np.ndarray | None, np.ndarray | None]:
    """Return where anchors start, if windows move them, and where they are decoded: (L, 3) m each.

    The latter are those of the last window at the last step. None for anchors without places.
    """
    if decomposed.anchors is None:
        return None, None
    starts = surrogate.places(decomposed.anchors[0].detach().cpu().numpy())
    if not isinstance(decomposed, MovesAnchors) or not decomposed.window_anchors:
        return None, starts
    moved = decomposed.window_anchors[-1][0].detach().cpu().numpy()
    return starts, surrogate.places(moved.reshape(-1, *moved.shape[-2:])[-1])


def _carried(
    surrogate: Surrogate, neighbour: StoredCase, points: np.ndarray, size: int
) -> Iterator[Contributions]:
    """Yield the contributions of another design's case at the cells nearest to some points."""
    return surrogate.decomposition(
        neighbour,
        start_s=surrogate.problem.shown_start(neighbour),
        cells=carried_cells(neighbour, points),
    ).chunks(size)


def _at_starts(
    fields: AnchorFields, starts: np.ndarray | None, spacing_m: float
) -> dict[str, float]:
    """Return the scores of places for where the anchors start, if windows have moved them."""
    if starts is None:
        return {}
    found = place_scores(replace(fields, anchors=starts), spacing_m)
    return {f"start_{name}": value for name, value in found.items() if np.isfinite(value)}


def _over_time(parts: list[np.ndarray], variance: np.ndarray | None) -> dict[str, float]:
    if variance is None:
        return {}
    found = stability.match_parts(parts)
    known = variance[np.isfinite(variance)]
    return {
        "time_correlation": found.score,
        "time_kept": found.kept,
        **({"temporal_variance": float(np.median(known))} if len(known) else {}),
    }


def _between(parts: list[_Part]) -> dict[str, float]:
    """Return how well the fields match those of the other run, and of the other design."""
    sums = {
        "seed_correlation": [part.with_other for part in parts if part.with_other is not None],
        "design_correlation": [
            part.with_neighbour for part in parts if part.with_neighbour is not None
        ],
    }
    return {key: stability.match_parts(found).score for key, found in sums.items() if found}


def _following(
    surrogate: Surrogate,
    case: StoredCase,
    parts: list[_Part],
    fields: AnchorFields,
    spacing_m: float,
) -> dict[str, float]:
    """Return whether the strongest fields follow vortices; nothing for a flow without any."""
    motion = [part.motion for part in parts if part.motion is not None]
    start = surrogate.problem.shown_start(case)
    if not motion or start is None:
        return {}
    cores = vortices.solved_cores(surrogate, case, start, spacing_m)
    if cores is None:
        return {}
    centroids = vortices.moving_centroids(np.sum(motion, axis=0))
    strongest = np.argsort(-fields.energies, kind="stable")[:TOP]
    return vortices.following_scores(centroids[:, strongest, : cores[0].shape[1]], cores, spacing_m)


def _contiguity(
    labels: np.ndarray | None, fields: AnchorFields, case: StoredCase
) -> dict[str, float]:
    if labels is None:
        return {}
    pairs = partition.neighbour_pairs(fields.points, case.dataset.schema.dimension)
    if not partition.is_connected(fields.volumes, pairs):
        return {}
    return {"contiguity": partition.contiguity(labels, fields.volumes, pairs)}
