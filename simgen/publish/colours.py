"""The colour maps of fields, and which map a component has wherever it is drawn.

The steps of colour maps look alike everywhere: equal distances in OKLab. Of values around zero
matplotlib's light-centred maps change up to six times as fast in one place as in another, which
shows edges that the field does not have; its even ones have a dark centre, so that most of a
picture would be black. Here each half is a straight line in OKLab (Ottosson, 2020) from white to a
colour, in four steps, and both colours are equally dark: equal magnitudes of either sign look
alike.
"""

from matplotlib import colormaps
from matplotlib.colors import Colormap, LinearSegmentedColormap

#: Of magnitudes of contributions and weights, and of values without a natural zero.
MAGNITUDES, VALUES = "magma_r", "viridis"

#: Blue below zero, red above.
SIGNED = LinearSegmentedColormap.from_list(
    "signed",
    (
        *("#074490", "#4770ac", "#809dc6", "#bbcae0", "#f8f8f8"),
        *("#e0c0be", "#c48986", "#a65352", "#851420"),
    ),
    511,
)
#: Purple below zero, brown above: errors, so that they are not mistaken for a field.
ERRORS = LinearSegmentedColormap.from_list(
    "errors",
    (
        *("#4d318e", "#7262aa", "#9c93c5", "#c9c5df", "#f8f8f8"),
        *("#d7c4ba", "#b6927e", "#946245", "#723402"),
    ),
    511,
)

LEAST_SIDE = 0.2  # of the larger side, that the values beyond zero have to reach


def is_signed(low: float, high: float) -> bool:
    """Return whether values have colours around zero, by their 5 and 95 % quantiles in training.

    Values from below zero to about zero have: at the bright end of a map zero would not be neutral.
    """
    return -low > LEAST_SIDE * abs(high) and high > LEAST_SIDE * low


def colour_map(low: float, high: float) -> Colormap:
    """Return the map of a component: around zero, or from low to high; magnitudes have the latter.

    Limits of a map around zero are symmetric, so that white is zero.
    """
    return SIGNED if is_signed(low, high) else colormaps[VALUES]
