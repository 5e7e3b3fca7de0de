"""Show the sampled designs."""

from __future__ import annotations

import numpy as np

from courant.report.context import Context
from courant.report.panel import Panel, PanelFigure
from simgen.publish import dataset_figures


def panel(context: Context) -> Panel | None:
    """Draw every design in the planes of its parameters; None where there are none."""
    parameters = context.dataset.schema.parameters
    if not parameters:
        return None
    table = context.dataset.design
    caption = (
        "The sampled designs over their parameters. A case keeps its split in every later version"
        " of the dataset."
    )
    accepted = int((table["status"] == "accepted").sum())
    figure = PanelFigure(
        "designs.png",
        dataset_figures.designs(context.dataset),
        caption,
        look_for="Gaps are designs that the model has never seen.",
        score=f"{accepted} of {len(table)} designs accepted",
    )
    arrays = {
        "cases": np.array(table.index.tolist(), dtype=str),
        "split": np.array([split or "" for split in table["split"]], dtype=str),
        "parameter_names": np.array([each.name for each in parameters]),
        "parameters": table[[each.name for each in parameters]].to_numpy(float),
    }
    return Panel("designs", "Designs", (figure,), arrays=arrays)
