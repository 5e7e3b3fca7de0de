"""What a recipe is, and what makes runs whose anchors' fields lie where the anchors are.

Learned anchors start far apart among the cells, the same for every seed, and narrow Gaussian
windows in encoder and decoder keep what they read and write near them (docs/analysis.md has the
scores). The paper has both features apart, and wider windows.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from courant.experiment import Experiment

WINDOW_SCALE = 0.35
PLACED: dict[str, Any] = {"model": {"anchor_kind": "learned"}, "data": {"anchor_start": "cloud"}}
"""Learn the anchors' places, and start them among the cells"""
LEGIBLE: dict[str, Any] = {
    "model": {"anchor_kind": "learned", "gaussian_window": "both", "window_scale": WINDOW_SCALE},
    "data": {"anchor_start": "cloud"},
}
"""Keep what such anchors read and write near them"""


class Recipe(NamedTuple):
    """A training run by name."""

    about: str  # One line, as `courant recipes` prints it
    base: Callable[[], Experiment] | str
    """The experiment, or the name of the recipe that it derives from"""
    changes: Sequence[Mapping[str, Any]] = ()  # By section, one after the other
    family: str | None = None  # None for that of the base
