"""The decomposition of a case's prediction: its scores, its controls, and maps of its anchors.

Contributions are as many fields as there are anchors, so they are reduced for one part of the cells
at a time. Scores are of the last step of a rollout, or of the one field of a steady case.

The error has an address: at each point the anchors' weights w_k sum to one (heads averaged), so the
squared error divides among the anchors completely. e is in standard deviations.

    E_k = integral of w_k |e|^2        sum over k of E_k = integral of |e|^2, exactly
    V_k = integral of w_k              sum over k of V_k = 1

E_k / V_k is the mean square error where anchor k has weight. It shows where the error is; the
anchor need not be its cause.

An ablation sets one anchor's latent to zero at a time, in the state that is decoded ("after") or
that was encoded ("before" the processor). The effect is the mean square change of the prediction at
the last step. Without z_k the weights of the other anchors change too, so delta_k does not show it.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Self

import numpy as np
import torch
from scipy.stats import spearmanr
from torch import Tensor

from courant import field_model as seam
from courant.analysis import Progress
from courant.analysis import scores as measures
from courant.analysis.dynamics import pod
from courant.evaluation.metrics import ALL, ErrorSums, ratio
from courant.evaluation.references import TrainingFields
from courant.prediction.surrogate import Surrogate
from courant.problems.problem import read_states
from simgen.errors import InputError
from simgen.point_cloud import point_tree
from simgen.store.read import StoredCase

MAX_VALUES = 1 << 22  # contributions in memory at once: 16 MiB, and a few times that on the way
WORST_SHARE = 0.1  # share of the anchors whose part in the error is reported
MAX_SNAPSHOTS = 256  # stored snapshots that POD is made from
RANDOM, NEAREST, POD = "random partition", "nearest-anchor partition", "POD"
CORE_RADIUS = 0.5  # around a vortex core, in spacings of the anchors: they resolve no nearer ones
MAX_CELLS = 2048  # at which predictions are compared in an ablation: every n-th of the case
TOGETHER = 16  # anchors that are left out at once, each in a copy of the state
MAPPED_WEIGHTS = 8_192  # points whose weights are in memory, times steps, heads and anchors


@dataclass(frozen=True)
class ErrorAddresses:
    """The squared error of a prediction, divided among L anchors."""

    sums: np.ndarray  # over points of V w_k |e|^2, V w_k and V w_k |e|^2 x: (L, 2 + d)
    volume: float
    squared: np.ndarray  # |e|^2 at each point: (M,)

    @classmethod
    def of(
        cls, weights: np.ndarray, errors: np.ndarray, points: np.ndarray, volumes: np.ndarray
    ) -> Self:
        """Divide errors (M, C) at points (M, d) by weights (M, L) that sum to one."""
        weights, volumes = weights.astype(np.float64), volumes.astype(np.float64)
        # In single precision the weights sum to one to 1e-7 only.
        weights = weights / weights.sum(axis=1, keepdims=True)
        squared = np.square(errors, dtype=np.float64).sum(axis=1)
        density = (volumes * squared)[:, None]
        columns = np.hstack([density, volumes[:, None], density * points.astype(np.float64)])
        return cls(weights.T @ columns, float(volumes.sum()), squared)

    @classmethod
    def joined(cls, parts: Sequence[Self]) -> Self:
        """Join the addresses at parts of the points, in order."""
        return cls(
            np.sum([part.sums for part in parts], axis=0),
            float(sum(part.volume for part in parts)),
            np.concatenate([part.squared for part in parts]),
        )

    @property
    def errors(self) -> np.ndarray:
        """E_k: (L,)."""
        return self.sums[:, 0] / self.volume

    @property
    def governed(self) -> np.ndarray:
        """V_k: (L,), each anchor's share of the volume."""
        return self.sums[:, 1] / self.volume

    @property
    def centres(self) -> np.ndarray:
        """The centroid of w_k |e|^2, (L, d) m; NaN where E_k is zero."""
        return ratio(self.sums[:, 2:], self.sums[:, :1])

    @property
    def total(self) -> float:
        """The mean square error over the volume, summed over the components."""
        return float(self.errors.sum())

    @property
    def densities(self) -> np.ndarray:
        """E_k / V_k, the mean square error where each anchor has weight: (L,)."""
        return np.nan_to_num(ratio(self.errors, self.governed))

    @property
    def worst(self) -> np.ndarray:
        """The numbers of the anchors, the one with most of the error first."""
        return np.argsort(-self.errors, kind="stable")

    def worst_part(self, share: float = WORST_SHARE) -> float:
        """Return the part of the error at the worst `share` of the anchors, at least one."""
        number = max(1, round(share * len(self.sums)))
        return float(self.errors[self.worst[:number]].sum()) / (self.total or 1.0)


@dataclass(frozen=True)
class CaseScores:
    """The scores of one case's decomposition, and what they were computed from."""

    case: str
    scores: dict[str, float]
    fields: measures.AnchorFields
    spacing_m: float
    controls: dict[str, measures.AnchorFields]
    dominant: np.ndarray | None  # (M,) anchor of largest weight; None for a model without weights
    temporal_variance: np.ndarray | None  # v_k, (L,); None for one state
    addresses: ErrorAddresses | None  # None without weights, or a solution at the time

    @cached_property
    def control_scores(self) -> dict[str, dict[str, float]]:
        """The scores of the controls' fields, by control."""
        return {n: measures.field_scores(of, self.spacing_m) for n, of in self.controls.items()}

    def arrays(self) -> dict[str, np.ndarray]:
        """Return what the scores were computed from, by anchor or by cell."""
        fields, addresses = self.fields, self.addresses
        found = {
            "energies": fields.energies,
            "gram": fields.gram,
            "centroids": fields.centroids,
            "gyration_radii": fields.radii,
            "support": fields.supports,
            "anchors": fields.anchors,
            "temporal_variance": self.temporal_variance,
            "points": fields.points,
            "volumes": fields.volumes,
            "dominant_anchor": self.dominant,
        }
        if addresses is not None:
            found |= {"error_address": addresses.errors, "error_governed": addresses.governed}
            found |= {"error_centre": addresses.centres, "squared_error": addresses.squared}
        return {name: values for name, values in found.items() if values is not None}


def score_case(
    surrogate: Surrogate,
    case: StoredCase,
    *,
    other: Surrogate | None = None,
    training: Callable[[], TrainingFields] | None = None,
    progress: Progress = lambda done, total: None,
) -> CaseScores:
    """Score the prediction that ends at the case's last snapshot (steady: the prediction).

    The fields are matched with those of the run `other`. `training` reads the training cases, of
    which the POD of a steady case is made. InputError for a model that does not decompose.
    """
    problem, points, volumes = surrogate.problem, case.points, volumes_of(case)
    start = problem.shown_start(case)
    scores: dict[str, float] = {}

    # The predicted state and its error, (M, C) in standard deviations.
    times = None if start is None else surrogate.times(start)
    last = surrogate.predict_last(case, start_s=start)
    std = np.asarray(surrogate.normaliser.at(case.parameters).std, np.float32)
    truth = problem.solution(case, None if times is None else float(times[-1]))
    if truth is not None:
        errors = ErrorSums(surrogate.channels)
        errors.add(last[None], truth[None])
        scores["nmae"] = errors.total(ALL)["nmae"]

    # Anchors are where they are decoded: in the last window at the last step, if windows move them.
    decomposed = surrogate.decomposition(case, start_s=start)
    starts = places = surrogate.places(decomposed.anchors)
    moved: Sequence[Tensor] = getattr(decomposed, "window_anchors", ())
    if places is not None and moved:
        ends = moved[-1][0]
        places = surrogate.places(ends.reshape(-1, *ends.shape[-2:])[[-1]])

    # One walk over the cells: fields and labels are joined, all else adds up.
    size = _chunk(decomposed)
    others: Iterator[seam.Contributions] = iter(())
    if other is not None:
        steps = None if start is None else problem.num_steps
        others = other.decomposition(case, start_s=start, steps=steps).chunks(size)
    joined, labels, addressed = [], [], []
    sums: dict[str, np.ndarray] = {}
    for part in decomposed.chunks(size):
        values = part.contributions[0].cpu().numpy()  # (T, L, m, C)
        at, here = points[part.queries], volumes[part.queries]
        joined.append(measures.AnchorFields.of(values[-1], at, here, places))
        found = {}
        if other is not None:
            theirs = next(others).contributions[0, -1].cpu().numpy()
            found["seed"] = measures.product_sums(values[-1], theirs, here)
        if len(values) > 1:
            found["time"] = measures.product_sums(values[0], values[-1], here)
            found["moments"] = measures.temporal_moments(values, here)
            found["motion"] = measures.motion_sums(values, at, here)
        for key, value in found.items():
            sums[key] = value + sums.get(key, 0.0)
        if isinstance(part, seam.Partitions):
            weights = part.weights[0, -1].mean(0).cpu().numpy()
            labels.append(np.argmax(weights, axis=-1))
            if truth is not None:
                error = (last[part.queries] - truth[part.queries]) / std
                addressed.append(ErrorAddresses.of(weights, error, at, here))
        progress(part.queries.stop, len(points))

    fields = measures.AnchorFields.joined(joined)
    spacing_m = 2 * surrogate.normaliser.length_scale / math.sqrt(fields.num_anchors)
    scores |= measures.field_scores(fields, spacing_m)
    if places is not starts:
        at_starts = measures.place_scores(replace(fields, anchors=starts), spacing_m)
        scores |= {f"start_{key}": each for key, each in at_starts.items() if np.isfinite(each)}
    variance = None
    if "time" in sums:
        over_time = measures.match(sums["time"])
        variance = ratio(*sums["moments"])
        scores |= {"time_correlation": over_time.score, "time_kept": over_time.kept}
        if np.isfinite(variance).any():
            scores["temporal_variance"] = float(np.nanmedian(variance))
    dominant = np.concatenate(labels) if labels else None
    if dominant is not None:
        dimension = case.dataset.schema.dimension
        whole = measures.contiguity(dominant, fields.points, fields.volumes, dimension)
        scores |= {} if whole is None else {"contiguity": whole}
    if "seed" in sums:
        scores["seed_correlation"] = measures.match(sums["seed"]).score
    if start is not None and "motion" in sums:
        cores = solved_cores(surrogate, case, start, CORE_RADIUS * spacing_m)
        if cores is not None:
            strongest = measures.by_energy(fields.gram)[: measures.TOP]
            columns = [*range(cores[0].shape[1]), -1]
            motion = sums["motion"][:, strongest][..., columns]
            scores |= measures.following_scores(motion, cores, spacing_m)
    addresses = ErrorAddresses.joined(addressed) if addressed else None
    if addresses is not None:
        scores["error_carried"] = addresses.worst_part()
    controls = case_controls(surrogate, case, fields, last / std, training)
    return CaseScores(case.id, scores, fields, spacing_m, controls, dominant, variance, addresses)


def volumes_of(case: StoredCase) -> np.ndarray:
    """Return the volumes of the case's cells (N,), ones where the dataset has none."""
    return case.volumes if case.dataset.schema.volumes else np.ones(case.num_points, np.float32)


def _chunk(decomposed: seam.FieldDecomposition) -> int:
    """Return how many points' contributions are in memory at once."""
    return max(1, MAX_VALUES // next(iter(decomposed.chunks(1))).contributions.numel())


def solved_cores(
    surrogate: Surrogate, case: StoredCase, start_s: float, radius: float
) -> list[np.ndarray] | None:
    """Return the vortex cores (n, d) m of the solution at each step of a training's rollout.

    None where the velocity is not modelled in all directions of the domain, or the case has no
    solution at one of the times.
    """
    dimension = case.dataset.schema.dimension
    names = [f"velocity.{axis}" for axis in "xyz"[:dimension]]
    times = surrogate.times(start_s)
    if times is None or dimension < 2 or not set(names) <= set(surrogate.channels):
        return None
    columns = [surrogate.channels.index(name) for name in names]
    points, found = case.points[:, :dimension], []
    for time in times.tolist():
        state = surrogate.problem.solution(case, time)
        if state is None:
            return None
        strength = measures.swirl(measures.velocity_gradients(points, state[:, columns]))
        found.append(measures.vortex_cores(points, strength, radius))
    return found


def case_controls(
    surrogate: Surrogate,
    case: StoredCase,
    fields: measures.AnchorFields,
    values: np.ndarray,
    training: Callable[[], TrainingFields] | None,
) -> dict[str, measures.AnchorFields]:
    """Decompose a predicted field, `values` (M, C) in deviations, by chance, by place and by POD.

    POD is of the case's own snapshots, which favours it, or of a steady case of training fields.
    """
    labels = np.random.default_rng(0).integers(fields.num_anchors, size=len(fields.points))
    found = {RANDOM: measures.partition_fields(fields, labels)}
    if fields.anchors is not None:
        nearest = np.asarray(point_tree(fields.anchors).query(fields.points)[1])
        found[NEAREST] = measures.partition_fields(fields, nearest)
    start, snapshots = surrogate.problem.start(case), np.zeros((0, *values.shape))
    normaliser = surrogate.normaliser.at(case.parameters)
    std = np.asarray(normaliser.std, np.float32)
    if start is not None and case.time is not None:
        frames = np.flatnonzero(case.time >= start)
        chosen = slice(int(frames[0]), None, -(-len(frames) // MAX_SNAPSHOTS))
        snapshots = read_states(case, normaliser.channels, chosen) / std
    elif start is None and training is not None:
        shift = np.asarray(normaliser.mean, np.float32) / std
        snapshots = training().at(case.points, without=case.id) + shift
    if len(snapshots) > 1:
        modes = pod(snapshots, fields.volumes, fields.num_anchors)
        projected = modes.fields(values, fields.volumes)
        found[POD] = measures.AnchorFields.of(projected, fields.points, fields.volumes)
    return found


def ablation_effects(
    surrogate: Surrogate, case: StoredCase, start_s: float | None
) -> dict[str, np.ndarray]:
    """Return the change of the prediction without each anchor, (L,), "before" and "after".

    Empty for a model that cannot decode a changed state; no "before" without a processor.
    """
    model, steps = surrogate.model, surrogate.problem.num_steps
    if not isinstance(model, seam.Decodes):
        return {}
    inputs, queries = surrogate.model_inputs(case, start_s)
    num = queries.points.shape[1]
    queries = queries.part(slice(0, num, -(-num // MAX_CELLS)))
    anchors = inputs.anchors
    if anchors is None:
        anchors = model.place_anchors(inputs.points, inputs.mask)

    def decode(Z: Tensor) -> Tensor:
        """States (b, L, d) -> fields (b, m, C) at the same queries."""
        points, features, places = (
            None if each is None else each.expand(len(Z), *each.shape[1:])
            for each in (queries.points, queries.features, anchors)
        )
        assert points is not None
        return model.decode(Z, seam.Queries(points, features), anchors=places)

    def advance(Z: Tensor) -> Tensor:
        return model.rollout(Z, steps)[:, -1] if isinstance(model, seam.Evolves) else Z

    def effects(Z: Tensor, change: Callable[[Tensor], Tensor]) -> np.ndarray:
        kept = 1 - torch.eye(Z.shape[1], device=Z.device, dtype=Z.dtype)
        fields = (decode(change(Z * part[..., None])) for part in kept.split(TOGETHER))
        return torch.cat([(each - whole).square().mean((1, 2)) for each in fields]).cpu().numpy()

    with torch.inference_mode():
        encoded = model.encode(inputs)
        evolves = surrogate.step_s is not None and isinstance(model, seam.Evolves)
        state = advance(encoded) if evolves else encoded
        whole = decode(state)
        found = {"after": effects(state, lambda Z: Z)}
        return found | ({"before": effects(encoded, advance)} if evolves else {})


def ablation_scores(effects: dict[str, np.ndarray], energies: np.ndarray) -> dict[str, float]:
    """Return Spearman's correlations of energies (L,) with the effects of ablations."""
    return {
        f"ablation_{name}": float(spearmanr(energies, values)[0])
        for name, values in effects.items()
        if np.ptp(values) > 0 and np.ptp(energies) > 0
    }


def ranked_fields(surrogate: Surrogate, case: StoredCase, top: int) -> dict[str, np.ndarray]:
    """Return the prediction that `score_case` scores as arrays, in physical units.

    `offset` u_0 (C,), `contributions` (K, M, C) of the `top` strongest anchors, `total` u (M, C);
    of all anchors `energies` E_k (L,) in standard deviations squared, their `ranking` (L,), and the
    `anchors` where they start (L, 3) m. InputError for a model that does not decompose.
    """
    decomposed = surrogate.decomposition(case, start_s=surrogate.problem.shown_start(case))
    volumes = volumes_of(case)
    energies = [
        np.square(fields).sum(axis=-1) @ volumes[where].astype(np.float64)
        for where, fields in last_fields(decomposed)
    ]
    energy = np.sum(energies, axis=0) / volumes.sum(dtype=np.float64)
    ranking = np.argsort(-energy, kind="stable")
    found = {
        "ranking": ranking,
        "energies": energy,
        **contributions_of(surrogate, case, decomposed, ranking[:top]),
        "points": case.points,
        "volumes": volumes,
    }
    places = surrogate.places(decomposed.anchors)
    return found if places is None else found | {"anchors": places}


def last_fields(decomposed: seam.FieldDecomposition) -> Iterator[tuple[slice, np.ndarray]]:
    """Yield parts of the points, and all anchors' fields there at the last step, (L, m, C)."""
    for part in decomposed.chunks(_chunk(decomposed)):
        yield part.queries, part.contributions[0, -1].float().cpu().numpy()


def contributions_of(
    surrogate: Surrogate, case: StoredCase, decomposed: seam.FieldDecomposition, anchors: np.ndarray
) -> dict[str, np.ndarray]:
    """Return `offset`, the `contributions` of some anchors, and `total`, in physical units."""
    normaliser = surrogate.normaliser.at(case.parameters)
    std = np.asarray(normaliser.std, np.float32)
    offset = np.asarray(normaliser.restore(decomposed.offset.cpu().numpy()))
    kept, sums = zip(
        *((fields[anchors], fields.sum(axis=0)) for _, fields in last_fields(decomposed)),
        strict=True,
    )
    return {
        "offset": offset,
        "contributions": np.concatenate(kept, axis=1) * std,
        "total": offset + np.concatenate(sums) * std,
    }


@dataclass(frozen=True)
class AnchorMaps:
    """Maps of A chosen anchors in a prediction of T steps (1 of a steady model) at M points."""

    chosen: np.ndarray  # (A,) numbers of the anchors
    times: np.ndarray | None  # (T,) s; None of a steady model
    dominant: np.ndarray  # anchor of largest decoder weight, heads averaged: (T, M)
    weights: np.ndarray  # decoder weights of the chosen anchors, 0..1: (T, A, M)
    points: np.ndarray  # (M, 3) m
    reading: np.ndarray | None
    """Encoder attention of the chosen anchors to the input points, at each level: (levels, A, N),
    one in sum over the points; None for a model without
    """
    read_points: np.ndarray  # (N, 3) m, the points that the encoder reads
    places: np.ndarray | None  # (L, 3) m; None for anchors without positions
    moved: np.ndarray | None  # (levels, L, 3) m at each level; None where levels move none

    @property
    def displacements(self) -> np.ndarray | None:
        """How far each level has moved each anchor from where it started, (levels, L) m."""
        if self.moved is None or self.places is None:
            return None
        return np.asarray(np.linalg.norm(self.moved - self.places, axis=-1))

    def arrays(self) -> dict[str, np.ndarray]:
        """Return all arrays that are there, by name."""
        found = {**vars(self), "displacements": self.displacements}
        return {name: values for name, values in found.items() if values is not None}


def map_anchors(
    surrogate: Surrogate, case: StoredCase, chosen: Sequence[int], start: float | None = None
) -> AnchorMaps:
    """Map some anchors in the prediction of a case that starts at a time.

    InputError for a number that no anchor has, and for a model without weights.
    """
    model, decomposed = surrogate.model, surrogate.decomposition(case, start_s=start)
    first = next(decomposed.chunks(1))
    if not isinstance(first, seam.Partitions):
        raise InputError(
            f"{surrogate.url}: a model of kind {model.config.kind} does not divide the domain among"
            " anchors, so there is nothing to map"
        )
    number = first.weights.shape[-1]
    if wrong := [each for each in chosen if not 0 <= each < number]:
        raise InputError(f"anchor {wrong[0]}: this model has anchors 0 to {number - 1}")
    dominant, weights = [], []
    for part in decomposed.chunks(max(1, MAPPED_WEIGHTS // first.weights.shape[1])):
        assert isinstance(part, seam.Partitions)
        averaged = part.weights[0].mean(dim=1).cpu().numpy()  # (T, m, L)
        dominant.append(np.argmax(averaged, axis=-1))
        weights.append(averaged[..., list(chosen)].swapaxes(1, 2))
    inputs, _ = surrogate.model_inputs(case, start)
    reading, moved = None, []
    if isinstance(model, seam.Reads):
        with torch.inference_mode():
            found = model.reading(inputs, chosen)
        reading = found.weights[0].cpu().numpy()
        moved = [np.asarray(surrogate.places(each)) for each in found.anchors]
    return AnchorMaps(
        chosen=np.array(chosen),
        times=None if start is None else surrogate.times(start),
        dominant=np.concatenate(dominant, axis=1),
        weights=np.concatenate(weights, axis=2),
        points=np.asarray(case.points),
        reading=reading,
        read_points=np.asarray(surrogate.places(inputs.points)),
        places=surrogate.places(decomposed.anchors),
        moved=np.stack(moved) if moved else None,
    )


def representative_anchors(energies: np.ndarray, variance: np.ndarray | None) -> list[int]:
    """Choose three of the stronger half: two that vary most, the steadiest; else the strongest."""
    strong = np.argsort(-energies, kind="stable")[: max(3, len(energies) // 2)]
    if variance is None:
        return [int(each) for each in strong[:3]]
    by_variance = strong[np.argsort(-np.nan_to_num(variance[strong]), kind="stable")]
    return [int(each) for each in dict.fromkeys([*by_variance[:2], by_variance[-1]])]
