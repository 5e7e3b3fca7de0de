"""Tell whether a prediction starts from latents like those of the training cases."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, model_validator

COMPONENTS = 8
LEAST_REACH = 1e-12
#: A prediction is within reach if its latents are as near to a training case's as this share of
#: the calibration cases' are.
REACH = 0.99
#: Comparing each design with each other one takes memory by their square.
MOST_CASES = 5_000


class Reach(BaseModel):
    """Latents of training cases, to tell whether a prediction starts from anything like them.

    A latent state is reduced to the mean and the deviation over anchors, then to whitened
    principal components.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)
    mean: tuple[float, ...]
    components: tuple[tuple[float, ...], ...]
    known: tuple[tuple[float, ...], ...] = Field(min_length=1, max_length=MOST_CASES)
    limit: float = Field(gt=0)

    @model_validator(mode="after")
    def _fits(self) -> Reach:
        wide = {len(row) for row in self.components} <= {len(self.mean)}
        if not wide or {len(row) for row in self.known} != {len(self.components)}:
            raise ValueError("its sizes do not fit one another")
        return self

    def distance(self, latent: np.ndarray) -> float:
        """Return the distance of pooled latents (2 d,) from the nearest known ones."""
        reduced = np.asarray(self.components) @ (latent - np.asarray(self.mean))
        return float(np.linalg.norm(np.asarray(self.known) - reduced, axis=1).min())


def fit_reach(known: Sequence[np.ndarray]) -> Reach | None:
    """Learn the latents of training cases; None for a model that has none."""
    if len(known) < 3:
        return None
    mean = np.mean(known, axis=0)
    _, sizes, directions = np.linalg.svd(np.stack(known) - mean, full_matrices=False)
    kept = [n for n, size in enumerate(sizes[:COMPONENTS]) if size > 1e-6 * sizes[0]]
    components = directions[kept] / (sizes[kept, None] / np.sqrt(len(known)))
    return Reach(
        mean=tuple(mean.tolist()),
        components=tuple(map(tuple, components.tolist())),
        known=tuple(map(tuple, ((np.stack(known) - mean) @ components.T).tolist())),
        limit=LEAST_REACH,
    )


def ending_at(reach: Reach, limit: float) -> Reach:
    """Let the reach end at a distance; a model whose latents tell nothing of a case has no end."""
    return reach.model_copy(update={"limit": max(limit, LEAST_REACH)})
