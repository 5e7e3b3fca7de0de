"""Score a decomposition: name every score, say what is good, and compute it from the fields."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np

from courant.analysis.decomposition import economy, faithfulness, locality
from courant.analysis.decomposition.anchor_fields import AnchorFields

TOP = 8
"""Number of anchors that the paper's figures show"""


@dataclass(frozen=True)
class Score:
    """One number about a decomposition."""

    key: str
    subject: Literal[
        "accuracy", "locality", "economy", "faithfulness", "stability", "meaning", "error", "rhythm"
    ]
    name: str
    range: str
    good: Literal["small", "large", "neither"]
    aim: float | None = None
    """A value from which on it is good"""

    @property
    def aim_text(self) -> str:
        """`small, at most 0.4`"""
        if self.good == "neither":
            return ""
        bound = "at most" if self.good == "small" else "at least"
        return self.good if self.aim is None else f"{self.good}, {bound} {self.aim:g}"

    @property
    def aim_sign(self) -> str:
        """`≤ 0.4`, for a terminal; `small` without an aim"""
        if self.aim is None:
            return "" if self.good == "neither" else self.good
        return f"{'≤' if self.good == 'small' else '≥'} {self.aim:g}"

    def reached(self, value: float | None) -> bool | None:
        """Tell whether a value is good; None where there is no aim or no value."""
        if value is None or self.aim is None:
            return None
        return value <= self.aim if self.good == "small" else value >= self.aim


SCORES = (
    Score("nmae", "accuracy", "NMAE of the prediction", "0 ..", "small"),
    Score("anchor_distance", "locality", "anchor to centroid / spacing", "0 .. √L", "small", 0.4),
    Score("own_anchor_nearest", "locality", "own anchor is nearest", "0 .. 1", "large", 0.6),
    Score(
        "start_anchor_distance", "locality", "start of the anchor to centroid", "0 .. √L", "small"
    ),
    Score("start_own_anchor_nearest", "locality", "own start is nearest", "0 .. 1", "large"),
    Score("support", "locality", "volume with 90 % of the energy", "0 .. 0.9", "small", 0.08),
    Score("gyration_radius", "locality", "radius of gyration / spacing", "0 .. √L", "small"),
    Score("overlap", "locality", "overlap of pairs", "0 .. 1", "small"),
    Score("top_share", "economy", f"energy of the top {TOP}", f"{TOP}/L .. 1", "large"),
    Score("gini", "economy", "Gini of the energies", "0 .. 1 - 1/L", "large"),
    Score("cancellation", "economy", "cancellation", "1 .. ∞", "small"),
    Score("insertion_area", "faithfulness", "area under insertion", "0 ..", "small"),
    Score("deletion_area", "faithfulness", "area under deletion", "0 ..", "large"),
    Score("random_area", "faithfulness", "the same in random order", "0 ..", "neither"),
    Score(
        "ablation_after", "faithfulness", "energy ranks the effect of zₖ = 0", "-1 .. 1", "large"
    ),
    Score("ablation_before", "faithfulness", "the same before the processor", "-1 .. 1", "large"),
    Score("time_correlation", "stability", "matched, first to last step", "-1 .. 1", "large"),
    Score("time_kept", "stability", "anchors that keep their field", "0 .. 1", "large"),
    Score("seed_correlation", "stability", "matched, with the other run", "-1 .. 1", "large", 0.8),
    Score(
        "design_correlation", "stability", "matched, with the nearest design", "-1 .. 1", "large"
    ),
    Score("contiguity", "meaning", "contiguity of the partition", "0 .. 1", "large"),
    Score("temporal_variance", "meaning", "temporal variance", "0 .. 1", "neither"),
    Score("vortex_distance", "meaning", "moving part to vortex / spacing", "0 .. √L", "neither"),
    Score("vortex_chance", "meaning", "the same at other times", "0 .. √L", "neither"),
    Score("error_carried", "error", "error at the worst tenth of anchors", "0.1 .. 1", "neither"),
    Score("frequency_error", "rhythm", "error of the flow's frequency", "0 ..", "small", 0.1),
    Score("locked_in", "rhythm", "anchors within 20 % of it", "0 .. 1", "large"),
    Score("rhythm_kept", "rhythm", "part of the rollout within 20 %", "0 .. 1", "large"),
)


def field_scores(fields: AnchorFields, spacing_m: float) -> dict[str, float]:
    """Compute the scores that follow from the fields alone, medians over the fields with energy.

    Those of places are left out for anchors without positions, and areas where the fields add up
    to nothing.
    """
    gram, energies = fields.gram, fields.energies
    values = {
        **place_scores(fields, spacing_m),
        "support": _median(locality.support_fractions(fields)),
        "gyration_radius": _median(locality.gyration_radii(fields)) / spacing_m,
        "overlap": locality.overlap(fields),
        "top_share": economy.top_share(energies, TOP),
        "gini": economy.gini(energies),
        "cancellation": economy.cancellation(fields),
    }
    if gram.sum() > 0:
        order = faithfulness.by_energy(gram)
        values |= {
            "insertion_area": faithfulness.area(faithfulness.insertion_curve(gram, order)),
            "deletion_area": faithfulness.area(faithfulness.deletion_curve(gram, order)),
            "random_area": faithfulness.area(faithfulness.random_deletion(gram)),
        }
    return {key: value for key, value in values.items() if math.isfinite(value)}


def mean_scores(scores: list[Mapping[str, float]]) -> dict[str, float]:
    """Return the mean of each score over the cases that have it."""
    keys = [score.key for score in SCORES if any(score.key in each for each in scores)]
    return {key: float(np.mean([each[key] for each in scores if key in each])) for key in keys}


def place_scores(fields: AnchorFields, spacing_m: float) -> dict[str, float]:
    """Compute the scores of how far fields are from their anchors; none without positions."""
    distances, nearest = locality.anchor_distances(fields), locality.own_anchor_nearest(fields)
    if distances is None or nearest is None:
        return {}
    return {
        "anchor_distance": _median(distances) / spacing_m,
        "own_anchor_nearest": float(nearest[np.isfinite(distances)].mean()),
    }


def _median(values: np.ndarray) -> float:
    known = values[np.isfinite(values)]
    return float(np.median(known)) if len(known) else float("nan")
