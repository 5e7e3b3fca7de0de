"""The colour maps of fields, and which map a component has wherever it is drawn.

The steps of colour maps look alike everywhere: equal distances in OKLab. Of values around zero
matplotlib's light-centred maps change up to six times as fast in one place as in another, which
shows edges that the field does not have; its even ones have a dark centre, so that most of a
picture would be black. Here each half is a straight line in OKLab (Ottosson, 2020) from white to a
colour, and both colours are equally dark: equal magnitudes of either sign look alike.
"""

import numpy as np
from matplotlib import colormaps
from matplotlib.colors import Colormap, ListedColormap

#: Of magnitudes of contributions and weights, and of values without a natural zero.
MAGNITUDES, VALUES = "magma_r", "viridis"

# From OKLab to long, middle and short cones, and from these to linear sRGB: OKLab's definition.
_TO_CONES = np.array(
    [[0.3963377774, -0.1055613458, -0.0894841775], [0.2158037573, -0.0638541728, -1.2914855480]]
)
_TO_LINEAR = np.array(
    [
        [4.0767416621, -3.3077115913, 0.2309699292],
        [-1.2684380046, 2.6097574011, -0.3413193965],
        [-0.0041960863, -0.7034186147, 1.7076147010],
    ]
)


def _around_zero(
    name: str, low: tuple[float, float, float], high: tuple[float, float, float]
) -> ListedColormap:
    """Return a map from one colour in OKLab over white to another."""
    half, white = np.linspace(0.0, 1.0, 256)[:, None], np.array((0.98, 0.0, 0.0))
    down, up = (white + half * (np.array(end) - white) for end in (low, high))
    lab = np.concatenate([down[::-1], up[1:]])
    linear = np.clip((lab[:, :1] + lab[:, 1:] @ _TO_CONES) ** 3 @ _TO_LINEAR.T, 0.0, 1.0)
    rgb = np.where(linear <= 0.0031308, 12.92 * linear, 1.055 * linear ** (1 / 2.4) - 0.055)
    return ListedColormap(rgb, name)


#: Blue below zero, red above.
SIGNED = _around_zero("signed", (0.40, -0.03, -0.135), (0.40, 0.135, 0.055))
#: Purple below zero, brown above: errors, so that they are not mistaken for a field.
ERRORS = _around_zero("errors", (0.40, 0.055, -0.135), (0.40, 0.065, 0.080))


LEAST_SIDE = 0.2  # of the larger side, that the values beyond zero have to reach


def is_signed(low: float, high: float) -> bool:
    """Return whether values have colours around zero, by their 5 and 95 % quantiles in training."""
    return min(-low, high) > LEAST_SIDE * max(-low, high)


def colour_map(low: float, high: float) -> Colormap:
    """Return the map of a component: around zero, or from low to high; magnitudes have the latter.

    Limits of a map around zero are symmetric, so that white is zero.
    """
    return SIGNED if is_signed(low, high) else colormaps[VALUES]
