"""Score the decomposition of a case's prediction.

Set one anchor's latent to zero at a time, and measure how much the prediction changes.

    after   z_k = 0 in the state that is decoded
    before  z_k = 0 in the state that was encoded, from which the processor goes on

The change is the mean square over cells of the prediction at the last step, in standard deviations.
A field delta_k alone does not say it: without z_k the weights of the other anchors change too, and
what the processor would have made of z_k is lost to them. Where energies order the anchors as these
changes do, strong fields are those that the prediction depends on.

Score the decomposition of a predicted case, beside controls of the same field.

Contributions are as many fields as there are anchors, so they are reduced for one part of the
cells at a time. Scores are of the last step of a rollout, or of the one field of a steady case.

Make the decompositions that a case's fields are compared with.

Rank the contributions of a prediction by energy, and keep the strongest as arrays.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from scipy.stats import spearmanr
from torch import Tensor

from courant.analysis.error_addresses import AddressSums, ErrorAddresses, address_sums
from courant.analysis.scores import (
    TOP,
    AnchorFields,
    carried_cells,
    contiguity,
    dominant_anchors,
    field_scores,
    following_scores,
    is_connected,
    match_parts,
    motion_sums,
    moving_centroids,
    nearest_anchor_partition,
    neighbour_pairs,
    place_scores,
    pod_fields,
    product_sums,
    random_partition,
    solved_cores,
    spacing,
    temporal_moments,
    temporal_variance,
)
from courant.evaluation.metrics import ALL, ErrorSums
from courant.evaluation.references import TrainingFields
from courant.field_model import (
    Contributions,
    Decodes,
    Evolves,
    FieldDecomposition,
    MovesAnchors,
    Partitions,
    Queries,
)
from courant.prediction.surrogate import Surrogate
from courant.problems.transient import read_states
from simgen.store.read import StoredCase

MAX_CELLS = 2048
"""Cells at which predictions are compared: every n-th of the case"""
TOGETHER = 16
"""Anchors that are left out at once, each in a copy of the state"""


@dataclass(frozen=True)
class AblationEffects:
    """The mean square change of the prediction without each anchor."""

    after: np.ndarray
    """(L,)"""
    before: np.ndarray | None
    """(L,); None for a model without a processor"""

    def scores(self, energies: np.ndarray) -> dict[str, float]:
        """Return Spearman's correlations of energies (L,) with these changes."""
        found = {"ablation_after": self.after, "ablation_before": self.before}
        return {
            name: float(spearmanr(energies, effects)[0])
            for name, effects in found.items()
            if effects is not None and np.ptp(effects) > 0 and np.ptp(energies) > 0
        }


def ablation_effects(
    surrogate: Surrogate, case: StoredCase, start_s: float | None
) -> AblationEffects | None:
    """Leave out each anchor in turn; None for a model that cannot decode a changed state."""
    model, steps = surrogate.model, surrogate.problem.num_steps
    if not isinstance(model, Decodes):
        return None
    inputs, queries = surrogate.model_inputs(case, start_s)
    num = queries.points.shape[1]
    queries = queries.part(slice(0, num, -(-num // MAX_CELLS)))
    anchors = inputs.anchors
    if anchors is None:
        anchors = model.place_anchors(inputs.points, inputs.mask)
    evolves = surrogate.step_s is not None and isinstance(model, Evolves)
    with torch.inference_mode():
        encoded = model.encode(inputs)
        state = _last(model, encoded, steps) if evolves else encoded
        whole = _decoded(model, state, queries, anchors)

        def change(states: Tensor) -> Tensor:
            return (_decoded(model, states, queries, anchors) - whole).square().mean((1, 2))

        after = torch.cat([change(part) for part in _without_one(state)])
        before = None
        if evolves:
            left = _without_one(encoded)
            before = torch.cat([change(_last(model, part, steps)) for part in left])
    return AblationEffects(after.cpu().numpy(), None if before is None else before.cpu().numpy())


def _without_one(Z: Tensor) -> list[Tensor]:
    """Return copies of a state (1, L, d), each without one of its anchors, in parts (b, L, d)."""
    number = Z.shape[1]
    kept = 1 - torch.eye(number, device=Z.device, dtype=Z.dtype)
    return [Z * part[..., None] for part in kept.split(TOGETHER)]


def _last(model: torch.nn.Module, Z: Tensor, steps: int) -> Tensor:
    assert isinstance(model, Evolves)
    return model.rollout(Z, steps)[:, -1]


def _decoded(model: torch.nn.Module, Z: Tensor, queries: Queries, anchors: Tensor | None) -> Tensor:
    """Return the fields (b, M, C) of states (b, L, d) at the same queries (1, M, ...)."""
    assert isinstance(model, Decodes)
    points, features = (
        None if each is None else each.expand(len(Z), *each.shape[1:])
        for each in (queries.points, queries.features)
    )
    assert points is not None
    places = None if anchors is None else anchors.expand(len(Z), *anchors.shape[1:])
    return model.decode(Z, Queries(points, features), anchors=places)


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
    variance = temporal_variance(np.sum(moments, axis=0)) if moments else None
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
            labels = dominant_anchors(weights)
            if shown.errors is not None:
                errors = shown.errors[part.queries]
                addresses = address_sums(weights, errors, points[part.queries], here)
        if beside is not None:
            with_other = product_sums(
                values[-1], next(beside).contributions[0, -1].cpu().numpy(), here
            )
        if carried is not None:
            its = next(carried).contributions[0, -1].cpu().numpy()
            with_neighbour = product_sums(values[-1], its, here)
        yield _Part(
            AnchorFields.of(values[-1], points[part.queries], here, places),
            starts,
            labels,
            product_sums(values[0], values[-1], here) if len(values) > 1 else None,
            temporal_moments(values, here) if len(values) > 1 else None,
            motion_sums(values, points[part.queries], here) if len(values) > 1 else None,
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
    found = match_parts(parts)
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
    return {key: match_parts(found).score for key, found in sums.items() if found}


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
    cores = solved_cores(surrogate, case, start, spacing_m)
    if cores is None:
        return {}
    centroids = moving_centroids(np.sum(motion, axis=0))
    strongest = np.argsort(-fields.energies, kind="stable")[:TOP]
    return following_scores(centroids[:, strongest, : cores[0].shape[1]], cores, spacing_m)


def _contiguity(
    labels: np.ndarray | None, fields: AnchorFields, case: StoredCase
) -> dict[str, float]:
    if labels is None:
        return {}
    pairs = neighbour_pairs(fields.points, case.dataset.schema.dimension)
    if not is_connected(fields.volumes, pairs):
        return {}
    return {"contiguity": contiguity(labels, fields.volumes, pairs)}


MAX_SNAPSHOTS = 256
"""Stored snapshots that POD is made from"""
RANDOM, NEAREST, POD = "random partition", "nearest-anchor partition", "POD"


def case_controls(
    surrogate: Surrogate,
    case: StoredCase,
    fields: AnchorFields,
    values: np.ndarray,
    training: Callable[[], TrainingFields] | None,
) -> dict[str, AnchorFields]:
    """Return decompositions of a predicted field, `values` (M, C) in standard deviations.

    They are by chance, by place and by POD: of the case's own snapshots, which favours it, or of
    the training cases' fields, carried over, where the case is steady.
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
            states / std, values, fields.points, fields.volumes, fields.num_anchors
        )
    elif start is None and training is not None:
        scaled = surrogate.normaliser.at(case.parameters)
        shift = np.asarray(scaled.mean, np.float32) / np.asarray(scaled.std, np.float32)
        snapshots = training().carried(case.points, without=case.id) + shift
        if len(snapshots) > 1:
            found[POD] = pod_fields(
                snapshots, values, fields.points, fields.volumes, fields.num_anchors
            )
    return found


@dataclass(frozen=True)
class RankedFields:
    """The prediction u = u_0 + sum of delta_k at the last step, in physical units."""

    case: str
    ranking: np.ndarray
    """(L,) numbers of the anchors, the one of most energy first"""
    energies: np.ndarray
    """E_k, (L,), of the anchors in their own order; in standard deviations squared"""
    offset: np.ndarray
    """u_0, (C,)"""
    contributions: np.ndarray
    """delta_k of the first anchors of the ranking, (K, M, C)"""
    total: np.ndarray
    """u, (M, C)"""
    points: np.ndarray
    """(M, 3) m"""
    volumes: np.ndarray
    """(M,)"""
    anchors: np.ndarray | None
    """Where anchors start, (L, 3) m; None for anchors without positions"""

    def arrays(self) -> dict[str, np.ndarray]:
        """Return all but the case's id; what is not known is left out."""
        found = {name: values for name, values in vars(self).items() if name != "case"}
        return {name: values for name, values in found.items() if values is not None}


def rank(energies: np.ndarray) -> np.ndarray:
    """Return the numbers of the anchors, the one of most energy first."""
    return np.argsort(-energies, kind="stable")


def ranked_fields(surrogate: Surrogate, case: StoredCase, top: int) -> RankedFields:
    """Take the prediction that `score_case` scores apart, and keep its `top` strongest fields.

    InputError for a model that does not decompose its predictions.
    """
    start = surrogate.problem.shown_start(case)
    decomposed, volumes = surrogate.decomposition(case, start_s=start), volumes_of(case)
    normaliser = surrogate.normaliser.at(case.parameters)
    std = np.asarray(normaliser.std, np.float32)
    energies, whole = _energies_and_sum(decomposed, volumes)
    ranking = rank(energies)
    kept = _of_anchors(decomposed, ranking[:top])
    offset = np.asarray(normaliser.restore(decomposed.offset.cpu().numpy()))
    starts = None if decomposed.anchors is None else decomposed.anchors[0].detach().cpu().numpy()
    return RankedFields(
        case=case.id,
        ranking=ranking,
        energies=energies,
        offset=offset,
        contributions=kept * std,
        total=offset + whole * std,
        points=case.points,
        volumes=volumes,
        anchors=None if starts is None else surrogate.places(starts),
    )


def _energies_and_sum(
    decomposed: FieldDecomposition, volumes: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return E_k, (L,), and the sum of all fields (M, C), a part of the points at a time."""
    energies, sums = [], []
    for part in decomposed.chunks(_size(decomposed)):
        fields = part.contributions[0, -1].cpu().numpy()
        energies.append(np.square(fields).sum(axis=-1) @ volumes[part.queries].astype(np.float64))
        sums.append(fields.sum(axis=0))
    return np.sum(energies, axis=0) / volumes.sum(dtype=np.float64), np.concatenate(sums)


def _of_anchors(decomposed: FieldDecomposition, chosen: np.ndarray) -> np.ndarray:
    """Return the fields (K, M, C) of some anchors."""
    parts = decomposed.chunks(_size(decomposed))
    return np.concatenate(
        [part.contributions[0, -1].cpu().numpy()[chosen] for part in parts], axis=1
    )


def _size(decomposed: FieldDecomposition) -> int:
    return max(1, MAX_VALUES // next(iter(decomposed.chunks(1))).contributions.numel())
