"""Ducts that pass for branched pipes: designs can be meshed, a model is trained in seconds.

What the model predicts of a real pipe is not the point.
"""

from __future__ import annotations

from pathlib import Path

import torch

import simgen
from courant.runs.directory import RunDirectory
from courant.training.loop import fit
from simgen.case import CaseResult
from simgen.cases import get_family
from simgen.store.schema import Schema
from simgen.store.write import DatasetWriter
from tests.training.ducts import SPACE, duct, tiny_steady

FAMILY = get_family("branched-pipe")
SETTINGS = FAMILY.settings("trial", {"mesh_size": 12.0})
DESIGN = {
    "baffle_angle": 30.0,
    "aperture": 28.0,
    "duct_angle": 95.0,
    "curvature_angle": 130.0,
    "inlet_velocity": 6.0,
}
NUM_CASES = 6


def share(number: int) -> float:
    """The flow split that a case has on record."""
    return 0.4 + 0.02 * number


def trained_on_pipes(folder: Path) -> str:
    """Publish the cases below `folder`, and return a run that was trained on them."""
    torch.set_num_threads(1)
    writer = DatasetWriter.open(str(folder / "store" / "branched-pipe"), Schema.of(FAMILY))
    fork = writer.fork()
    designs = FAMILY.design_space.sample(NUM_CASES, "sobol", 1)
    for number, shape in enumerate(SPACE.sample(NUM_CASES, "sobol", 1)):
        provenance = {"figures": {"branch1_share": share(number)}}
        result = CaseResult(
            FAMILY.point(designs[number], SETTINGS), "accepted", provenance=provenance
        )
        fork.write(result, duct(60, shape, seed=number))
    writer.commit([fork])
    writer.publish("ducts")
    run = RunDirectory(folder / "runs" / "pipes")
    fit(tiny_steady(epochs=1), simgen.open_dataset(writer.url), run)
    return run.url
