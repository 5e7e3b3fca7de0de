"""Gather what a model knows of each anchor in one prediction, with its error where that is known.

    V_k       integral of w_k, the share of the volume where the anchor speaks
    S_k       integral of w_k s^2 / V_k, s being the deviation of the prediction over a cell's
              nearest neighbours: how rough the prediction is where the anchor speaks
    energy    integral of |delta_k|^2
    z_k       the latent, and how far it moved in the last step of a rollout
    E_k       integral of w_k |e|^2, which needs the truth (`decomposition.error_addresses`)

Lengths of fields are in standard deviations of the training cases, in the design's units where
fields scale with it (`data.scaled_by`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import torch

from courant.analysis.decomposition.case_scores import MAX_VALUES, volumes_of
from courant.analysis.decomposition.error_addresses import AddressSums, ErrorAddresses, address_sums
from courant.data.trajectories import times_between
from courant.field_model import Encodes, Evolves, FieldDecomposition, Partitions
from courant.prediction.field_scale import neighbour_variation
from courant.prediction.surrogate import Surrogate
from simgen.errors import InputError
from simgen.store.access.stored_case import StoredCase

ROUGHNESS, ERROR, OTHER_ERROR = "roughness", "error", "other error"
WINDOWS = 4
"""Rollouts of a transient case that are looked at, spread over it"""


@dataclass(frozen=True)
class AnchorState:
    """The anchors of one prediction, by number."""

    case: str
    governed: np.ndarray
    """V_k: (L,), sum one"""
    roughness: np.ndarray
    """S_k: (L,)"""
    energies: np.ndarray
    """(L,)"""
    latents: np.ndarray | None = None
    """(L, d); None for a model without latents"""
    change: np.ndarray | None = None
    """|z_k(T) - z_k(T - 1)|: (L,); None of a steady model"""
    errors: np.ndarray | None = None
    """E_k: (L,); None where the truth is not known"""
    places: np.ndarray | None = None
    """(L, 3) m; None for anchors without positions"""
    start_s: float | None = None
    """Start of the rollout; None of a steady model"""
    other_errors: np.ndarray | None = None
    """The errors of another model, divided among these anchors: (L,); None where there is none"""


def anchor_states(
    surrogate: Surrogate, case: StoredCase, windows: int = WINDOWS, other: Surrogate | None = None
) -> Iterator[AnchorState]:
    """Yield the state after each of some rollouts of a case, or of the one prediction if steady.

    Errors are those of the last step of a rollout. InputError for a model whose contributions do
    not divide the points among anchors.
    """
    for start in rollout_starts(surrogate, case, windows):
        yield anchor_state(surrogate, case, start, other)


def rollout_starts(surrogate: Surrogate, case: StoredCase, windows: int) -> list[float | None]:
    """Return at most so many starts, from the first to the one whose rollout ends with the case.

    None for a case that is shorter than a rollout.
    """
    first, last = surrogate.problem.start(case), surrogate.problem.shown_start(case)
    if first is None or last is None or case.time is None:
        return [None]
    usable = times_between(np.asarray(case.time), first, last)
    if not len(usable):
        return []
    chosen = np.unique(np.linspace(len(usable) - 1, 0, windows).round().astype(int))
    return [float(usable[number]) for number in chosen]


def anchor_state(
    surrogate: Surrogate, case: StoredCase, start: float | None, other: Surrogate | None = None
) -> AnchorState:
    """Gather the anchors of the prediction of a case that starts at a time, after its last step."""
    steps = None if start is None else surrogate.problem.num_steps
    last = surrogate.predict_last(case, start_s=start, steps=steps)
    times = None if start is None else surrogate.times(start)
    truth = surrogate.problem.solution(case, None if times is None else float(times[-1]))
    std = np.asarray(surrogate.normaliser.at(case.parameters).std)
    fields = {ROUGHNESS: neighbour_variation(np.asarray(case.points), (last / std)[None])[0]}
    if truth is not None:
        fields[ERROR] = (last - truth) / std
        if other is not None:
            others_last = other.predict_last(case, start_s=start, steps=steps)
            fields[OTHER_ERROR] = (others_last - truth) / std
    decomposed = surrogate.decomposition(case, start_s=start)
    divided, energies = _divided(surrogate, case, decomposed, fields)
    roughness, errors, others = map(divided.get, (ROUGHNESS, ERROR, OTHER_ERROR))
    assert roughness is not None
    latents, change = decoded_latents(surrogate, case, start)
    anchors = decomposed.anchors
    return AnchorState(
        case=case.id,
        governed=roughness.governed,
        roughness=roughness.densities,
        energies=energies,
        latents=latents,
        change=change,
        errors=None if errors is None else errors.errors,
        places=None if anchors is None else surrogate.places(anchors[0].detach().cpu().numpy()),
        start_s=start,
        other_errors=None if others is None else others.errors,
    )


def _divided(
    surrogate: Surrogate,
    case: StoredCase,
    decomposed: FieldDecomposition,
    fields: Mapping[str, np.ndarray],
) -> tuple[dict[str, ErrorAddresses], np.ndarray]:
    """Divide the squares of fields (M, C) among the anchors, and return their energies (L,) too."""
    points, volumes = np.asarray(case.points), volumes_of(case)
    size = max(1, MAX_VALUES // next(decomposed.chunks(1)).contributions.numel())
    energies: np.ndarray | float = 0.0
    sums: dict[str, list[AddressSums]] = {name: [] for name in fields}
    for part in decomposed.chunks(size):
        if not isinstance(part, Partitions):
            raise InputError(
                f"{surrogate.url}: a model of kind {surrogate.model.config.kind} does not divide"
                " the domain among anchors, so its errors have no addresses"
            )
        here, weights = part.queries, part.weights[0, -1].mean(0).cpu().numpy()
        contributions = part.contributions[0, -1].cpu().numpy()
        energies = energies + np.square(contributions).sum(axis=-1) @ volumes[here]
        for name, values in fields.items():
            sums[name].append(address_sums(weights, values[here], points[here], volumes[here]))
    total = float(volumes.sum(dtype=np.float64))
    divided = {name: ErrorAddresses.joined(parts) for name, parts in sums.items()}
    return divided, np.asarray(energies) / total


def decoded_latents(
    surrogate: Surrogate, case: StoredCase, start: float | None
) -> tuple[np.ndarray | None, np.ndarray | None]:
    """Return the latents (L, d) that are decoded last, and how far each moved in the last step."""
    model = surrogate.model
    if not isinstance(model, Encodes):
        return None, None
    inputs, _ = surrogate.model_inputs(case, start)
    with torch.inference_mode():
        encoded = model.encode(inputs)
        if start is None or not isinstance(model, Evolves):
            return encoded[0].float().cpu().numpy(), None
        states = torch.cat(
            [encoded[:, None], model.rollout(encoded, surrogate.problem.num_steps)], 1
        )
    last, before = (states[0, at].float().cpu().numpy() for at in (-1, -2))
    return last, np.linalg.norm(last - before, axis=1)
