"""Published models that Courant is compared with, one file each, with the paper's sizes.

Each file has a config, a model and the line that registers both, and is imported when an experiment
names its kind (`courant.models`). `baseline` has what they share: checked sizes, the window of
known states, nearest points, and how a model of mesh points or of a regular grid meets a cloud.

In the paper each reads 3 coordinates, also in 2D, but for the FNO, whose grid is flat; and the
fields and the distance field of its case.
"""

from typing import Any

OWN: dict[tuple[str, str], dict[str, Any]] = {
    ("fno", "Cyl.Flow"): {"dimension": 2},
    ("upt", "Br.Pipe"): {"num_latents": 384},
    ("upt", "Ctr.Pump"): {"num_latents": 384},
    ("mgn", "Br.Pipe"): {"num_layers": 7},
}
"""A kind's sizes for a case, where its defaults are not the paper's"""
