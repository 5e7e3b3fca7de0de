"""Find the coarser mesh of the solver that has a surrogate's error, and what it takes.

A surrogate competes with the solver on the dataset's mesh, and also with the solver on a coarser
one: that is less accurate as well, and needs no training.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import TYPE_CHECKING, Literal, NamedTuple

from pydantic import BaseModel, ConfigDict, Field

from courant.runs.directory import RunDirectory

if TYPE_CHECKING:
    from simgen.store.access.reader import Dataset

RECORD = "coarse-meshes.json"


class CoarseCase(BaseModel):
    """A test design on cells of one size."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)
    nmae: float = Field(ge=0)
    solve_s: float = Field(gt=0)
    """Core-seconds of the solver for what a prediction covers"""
    reference_s: float = Field(gt=0)
    """The same on the dataset's mesh, measured in the same way"""


class CoarseMesh(BaseModel):
    """The solver on cells of one size, held against the dataset's."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)
    size: float = Field(gt=0)
    """The setting `mesh_size`, in the family's unit"""
    nmae: float = Field(ge=0)
    relative_l2: float = Field(ge=0)
    cases: dict[str, CoarseCase] = Field(min_length=1)
    """Designs that were accepted on both meshes, by the id of the dataset's case"""

    @property
    def solve_s(self) -> float:
        """Mean over the designs."""
        return fmean(case.solve_s for case in self.cases.values())


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
    num_designs: int = Field(ge=1)
    """Of the split, whether or not they were accepted on coarser meshes"""
    meshes: tuple[CoarseMesh, ...] = Field(min_length=1)

    def is_of(self, snapshot: str, split: str, components: tuple[str, ...]) -> bool:
        """Tell whether the errors are over the same values as a model's."""
        return (self.snapshot, self.split, self.components) == (snapshot, split, components)

    @property
    def shared(self) -> tuple[str, ...]:
        """The designs that were accepted on every mesh: only these can be compared."""
        first, *others = (mesh.cases for mesh in self.meshes)
        return tuple(case for case in first if all(case in cases for cases in others))


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
    reference_size: float
    reference_s: float
    """The dataset's own mesh, which bounds what is finer"""
    num_shared: int
    num_designs: int
    """Designs that were compared, and those that a model is measured on"""

    @property
    def text(self) -> str:
        """`7.2`, `coarser than 10` or `between 7 and 5`."""
        if self.beyond == "finer":
            return f"between {self.size:.3g} and {self.reference_size:.3g}"
        return f"{self.beyond} than {self.size:.3g}" if self.beyond else f"{self.size:.3g}"

    @property
    def times(self) -> tuple[float | None, float | None]:
        """Least and greatest time of its solver, None where that is not known."""
        if self.beyond == "coarser":
            return None, self.solve_s
        if not self.beyond:
            return self.solve_s, self.solve_s
        # A coarser mesh that took as long as the dataset's tells nothing of those between them.
        cheaper = self.solve_s < self.reference_s
        return (self.solve_s, self.reference_s) if cheaper else (None, None)

    def time_text(self, show: Callable[[float], str]) -> str:
        """`3 s`, `at most 3 s`, `2 s to 14 s` or `not known`, with a way to tell seconds."""
        least, most = self.times
        if most is None:
            return "not known"
        if least is None:
            return f"at most {show(most)}"
        return show(most) if least == most else f"{show(least)} to {show(most)}"


def same_error(coarse: CoarseMeshes, errors: Mapping[str, float]) -> SameError | None:
    """Return the cheapest mesh whose error is that of a surrogate, by the NMAE of its cases.

    Meshes and surrogate are compared on the designs that all of them have, by the mean of the
    errors of single cases; None where they share none. Between two meshes, size and time follow the
    error by powers.
    """
    shared = [case for case in coarse.shared if case in errors]
    if not shared:
        return None
    nmae = fmean(errors[case] for case in shared)
    meshes = [
        _Mesh(
            each.size,
            fmean(each.cases[case].nmae for case in shared),
            fmean(each.cases[case].solve_s for case in shared),
        )
        for each in coarse.meshes
    ]
    size, seconds, beyond = _between(meshes, nmae)
    finest = coarse.meshes[-1].cases
    return SameError(
        size,
        seconds,
        beyond,
        reference_size=coarse.reference_size,
        reference_s=fmean(finest[case].reference_s for case in shared),
        num_shared=len(shared),
        num_designs=coarse.num_designs,
    )


class _Mesh(NamedTuple):
    size: float
    nmae: float
    solve_s: float


def _between(
    meshes: Sequence[_Mesh], nmae: float
) -> tuple[float, float, Literal["", "coarser", "finer"]]:
    """Return size, time and side of the cheapest mesh that has an error."""
    by_cost = sorted(meshes, key=lambda each: each.solve_s)
    cheapest = by_cost[0]
    if cheapest.nmae <= nmae:
        return cheapest.size, cheapest.solve_s, "coarser" if cheapest.nmae < nmae else ""
    worse = cheapest
    for better in by_cost[1:]:
        if better.nmae <= nmae:
            share = math.log(worse.nmae / nmae) / math.log(worse.nmae / max(better.nmae, 1e-12))
            return (
                worse.size * (better.size / worse.size) ** share,
                worse.solve_s * (better.solve_s / worse.solve_s) ** share,
                "",
            )
        worse = better
    best = min(by_cost, key=lambda each: each.nmae)
    return best.size, best.solve_s, "finer"
