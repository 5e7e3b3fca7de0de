"""Define colour maps whose steps look alike everywhere: equal distances in OKLab.

Of values around zero matplotlib's light-centred maps change up to six times as fast in one place
as in another, which shows edges that the field does not have; its even ones have a dark centre, so
that most of a picture would be black. Here each half is a straight line in OKLab (Ottosson, 2020)
from white to a colour, and both colours are equally dark: equal magnitudes of either sign stand
out alike.
"""

from __future__ import annotations

import numpy as np
from matplotlib.colors import ListedColormap

STEPS = 256
MAGNITUDES = "magma_r"
"""Of values from zero on"""
VALUES = "viridis"
"""Of values without a natural zero"""

_WHITE = (0.98, 0.0, 0.0)
# The rows are long, middle and short cones; numbers of the definition of OKLab.
_TO_CONES = np.array(
    [
        [1.0, 0.3963377774, 0.2158037573],
        [1.0, -0.1055613458, -0.0638541728],
        [1.0, -0.0894841775, -1.2914855480],
    ]
)
_TO_LINEAR = np.array(
    [
        [4.0767416621, -3.3077115913, 0.2309699292],
        [-1.2684380046, 2.6097574011, -0.3413193965],
        [-0.0041960863, -0.7034186147, 1.7076147010],
    ]
)


def _rgb(lab: np.ndarray) -> np.ndarray:
    """Return sRGB (n, 3) in 0..1 of OKLab (n, 3); colours of no screen are clipped."""
    linear = np.clip((lab @ _TO_CONES.T) ** 3 @ _TO_LINEAR.T, 0.0, 1.0)
    return np.where(linear <= 0.0031308, 12.92 * linear, 1.055 * linear ** (1 / 2.4) - 0.055)


def _around_zero(
    name: str, low: tuple[float, float, float], high: tuple[float, float, float]
) -> ListedColormap:
    half = np.linspace(0.0, 1.0, STEPS)[:, None]
    white = np.array(_WHITE)
    down, up = white + half * (np.array(low) - white), white + half * (np.array(high) - white)
    return ListedColormap(_rgb(np.concatenate([down[::-1], up[1:]])), name)


#: Blue below zero, red above.
SIGNED = _around_zero("signed", (0.40, -0.03, -0.135), (0.40, 0.135, 0.055))
#: Purple below zero, brown above: errors, so that nobody takes them for a field.
ERRORS = _around_zero("errors", (0.40, 0.055, -0.135), (0.40, 0.065, 0.080))
