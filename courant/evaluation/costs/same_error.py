"""Find the coarser mesh of the solver that has a surrogate's error, and what it takes.

A surrogate competes with the solver on the dataset's mesh, and also with the solver on a coarser
one: that is less accurate as well, and needs no training.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from pydantic import BaseModel, ConfigDict, Field

from courant.runs.directory import RunDirectory

if TYPE_CHECKING:
    from simgen.store.access.reader import Dataset

RECORD = "coarse-meshes.json"


class CoarseMesh(BaseModel):
    """The solver on cells of one size, held against the dataset's."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)
    size: float = Field(gt=0)
    """The setting `mesh_size`, in the family's unit"""
    num_cases: int = Field(ge=1)
    """Designs that were accepted on both meshes"""
    nmae: float = Field(ge=0)
    relative_l2: float = Field(ge=0)
    solve_s: float = Field(gt=0)
    """Mean core-seconds of the solver for what one prediction covers"""


class CoarseMeshes(BaseModel):
    """All sizes that were tried, the coarsest first, on one split of one dataset version."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    snapshot: str
    """Of the dataset whose mesh is the reference"""
    split: str
    coarse: str
    """URL and snapshot of the dataset of coarser meshes"""
    components: tuple[str, ...]
    """What errors are taken over, as in the evaluation of a model"""
    reference_size: float
    meshes: tuple[CoarseMesh, ...] = Field(min_length=1)

    def is_of(self, snapshot: str, split: str, components: tuple[str, ...]) -> bool:
        """Tell whether the errors are over the same values as a model's."""
        return (self.snapshot, self.split, self.components) == (snapshot, split, components)


def read_coarse_meshes(folder: RunDirectory) -> CoarseMeshes | None:
    """Read the record of a run or benchmark, if there is one."""
    if not folder.exists(RECORD):
        return None
    return folder.read_record(RECORD, CoarseMeshes, "remove it and measure again")


def coarse_meshes_on_record(
    folder: RunDirectory, components: tuple[str, ...], dataset: Dataset, split: str, coarse: Dataset
) -> CoarseMeshes | None:
    """Return the record in the folder if it is of these data and components."""
    known = read_coarse_meshes(folder)
    if known is None or known.coarse != name_of(coarse):
        return None
    return known if known.is_of(dataset.snapshot_id, split, components) else None


def name_of(coarse: Dataset) -> str:
    """Return what tells a dataset version of coarser meshes from others."""
    return f"{coarse.url} {coarse.snapshot_id}"


@dataclass(frozen=True)
class SameError:
    """A mesh with the error of a surrogate."""

    size: float
    solve_s: float
    beyond: Literal["", "coarser", "finer"]
    """Not empty where the error is outside what the meshes have, of which this is the nearest"""

    @property
    def time_bound(self) -> str:
        """What stands before the time: that of a mesh beyond is not known, but bounded."""
        return {"coarser": "at most ", "finer": "at least "}.get(self.beyond, "")

    def text(self) -> str:
        """`7.2`, `coarser than 10` or `finer than 5`."""
        return f"{self.beyond} than {self.size:.3g}" if self.beyond else f"{self.size:.3g}"


def same_error(meshes: Sequence[CoarseMesh], nmae: float) -> SameError:
    """Return the cheapest mesh whose error is that of a surrogate.

    Between two meshes, size and time follow the error by powers.
    """
    by_cost = sorted(meshes, key=lambda each: each.solve_s)
    cheapest = by_cost[0]
    if cheapest.nmae <= nmae:
        return SameError(cheapest.size, cheapest.solve_s, "coarser" if cheapest.nmae < nmae else "")
    worse = cheapest
    for better in by_cost[1:]:
        if better.nmae <= nmae:
            share = math.log(worse.nmae / nmae) / math.log(worse.nmae / max(better.nmae, 1e-12))
            return SameError(
                worse.size * (better.size / worse.size) ** share,
                worse.solve_s * (better.solve_s / worse.solve_s) ** share,
                "",
            )
        worse = better
    best = min(by_cost, key=lambda each: each.nmae)
    return SameError(best.size, best.solve_s, "finer")
