"""Set one anchor's latent to zero at a time, and measure how much the prediction changes.

    after   z_k = 0 in the state that is decoded
    before  z_k = 0 in the state that was encoded, from which the processor goes on

The change is the mean square over cells of the prediction at the last step, in standard deviations.
A field delta_k alone does not say it: without z_k the weights of the other anchors change too, and
what the processor would have made of z_k is lost to them. Where energies order the anchors as these
changes do, strong fields are those that the prediction depends on.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from scipy.stats import spearmanr
from torch import Tensor

from courant.field_model import Decodes, Evolves, Queries
from courant.prediction.surrogate import Surrogate
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
