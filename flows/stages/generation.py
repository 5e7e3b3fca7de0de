"""Stage `generate`: find its design points, its dataset, and the points that are left to solve."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import simgen
from flows.settings import MAX_SEED, MOST_TIME_S, absolute, check_reach, load_settings
from flows.stages.stage import RayWork
from simgen.case import CaseFamily, Status
from simgen.cases import get_family
from simgen.design_space import MOST_POINTS, DesignPoint, Sampler, unique
from simgen.errors import InputError
from simgen.foam.environment import find_openfoam
from simgen.solving.solve_case import needed_applications
from simgen.store.access.local_files import local_path
from simgen.store.access.repository import repository_exists
from simgen.store.access.writer import DatasetWriter, find_record
from simgen.store.format.layout import Schema
from simgen.store.format.split import Split


@dataclass(frozen=True)
class PublishedVersion:
    """Name a version of a dataset; the stages hand it to each other."""

    dataset: str
    version: str

    def line(self) -> str:
        """Describe its content: `cylinder-flow v1: 8 cases (5 train, ...) at <url>`."""
        return repr(simgen.open_dataset(self.dataset, self.version)).strip("<>")


@dataclass(frozen=True)
class CaseRequest:
    """Hold what `generate` and `generate-and-train` both take, which their flows explain."""

    family: str = "cylinder-flow"
    cases: int = 8
    sampler: Sampler = "sobol"
    seed: int = 42
    preset: str | None = None
    settings: dict[str, float] | None = None
    designs: str | None = None
    store: str | None = None
    time_limit_s: float | None = None
    retry_failed: bool = False
    cores: int = 1
    archive_raw: bool = False

    def __post_init__(self) -> None:
        """Refuse numbers that no case can be solved with, as the command line does."""
        if self.cores < 1:
            raise InputError(f"cores = {self.cores}: a case needs at least one")
        if not 0 <= self.seed <= MAX_SEED:
            raise InputError(f"seed = {self.seed}: a seed is 0 to {MAX_SEED}")
        if self.cases > MOST_POINTS:
            raise InputError(f"cases = {self.cases}: ask for at most {MOST_POINTS:,}")
        if self.time_limit_s is not None and not 0 < self.time_limit_s <= MOST_TIME_S:
            raise InputError(
                f"time_limit_s = {self.time_limit_s:g}: a limit is above 0 s, and at most"
                f" {MOST_TIME_S:,.0f} s"
            )


@dataclass(frozen=True)
class Generation(CaseRequest):
    """Hold the parameters of the flow `generate`, which explains them."""

    design_parameters: list[dict[str, float]] | None = None
    split: Split | None = None

    @property
    def url(self) -> str:
        """Return the dataset's URL: a store has one dataset of each family."""
        return f"{absolute(self.store or load_settings().store).rstrip('/')}/{self.family}"

    @property
    def known_preset(self) -> str:
        """Return the preset that is asked for, or the family's usual one."""
        return self.preset or self._family.usual_preset

    @property
    def remake(self) -> dict[str, Any]:
        """Return the parameters that make the version again, for its record."""
        return {
            "family": self.family,
            "cases": self.cases,
            "sampler": self.sampler,
            "seed": self.seed,
            "preset": self.known_preset,
            "settings": self.settings or {},
            "designs": self.designs,
            "design_parameters": self.design_parameters,
            "time_limit_s": self.time_limit_s,
            "split": self.split,
        }

    @cached_property
    def points(self) -> list[DesignPoint]:
        """The points to solve: sampled, given, or as `designs` says."""
        if self.designs and self.design_parameters is None and self._names_a_dataset(self.designs):
            return unique(self._points_of(simgen.open_dataset(absolute(self.designs))))
        values = self._family.settings(self.known_preset, self.settings)
        return unique([self._family.point(each, values) for each in self._designs()])

    @staticmethod
    def _names_a_dataset(designs: str) -> bool:
        return not local_path(designs).is_file() and repository_exists(absolute(designs))

    def _points_of(self, dataset: simgen.Dataset) -> list[DesignPoint]:
        """Return the test designs of a dataset with its settings, but for those given here."""
        if dataset.schema.family != self.family:
            raise InputError(
                f"--designs {dataset.url} holds {dataset.schema.family}, not {self.family}"
            )
        cases = [dataset[case] for case in dataset.cases("test")]
        if not cases:
            raise InputError(f"--designs {dataset.url} {dataset.version} has no test case")
        return [
            self._family.point(
                case.parameters,
                self._family.settings(
                    self.known_preset, {**case.settings, **(self.settings or {})}
                ),
            )
            for case in cases
        ]

    def _designs(self) -> list[dict[str, float]]:
        space = self._family.design_space
        if self.designs and self.design_parameters is not None:
            raise InputError("designs and design_parameters both name the designs; give one")
        if self.design_parameters is not None:
            if not self.design_parameters:
                raise InputError("design_parameters names no design; leave it out to sample some")
            return self.design_parameters
        if self.designs:
            return space.read_csv(local_path(self.designs))
        return space.sample(self.cases, self.sampler, self.seed)

    def finished(self) -> PublishedVersion | None:
        """Return the newest version if it holds all on record, and all points are on record."""
        points = self.points
        record = find_record(self.url, Schema.of(self._family))
        if record is None or record.version is None:
            return None
        left = to_solve(points, record.known, self.retry_failed)
        return None if left else PublishedVersion(self.url, record.version)

    def prepare(self) -> RayWork | None:
        """Find the solver and open the store.

        A new store is created, since nothing else tells whether it can be written.
        """
        _, left = self.open()
        return "cases" if left and load_settings().jobs_address is None else None

    def open(self) -> tuple[DatasetWriter, list[DesignPoint]]:
        """Return the dataset's writer and the points that are left to solve.

        InputError where that needs a solver which is not there, StoreError where the store cannot
        be written.
        """
        if not repository_exists(self.url):
            # Before there is anything on disk; a dataset that has all designs needs no solver.
            self._find_solver()
        writer = DatasetWriter.open(self.url, Schema.of(self._family))
        left = to_solve(self.points, writer.known(), self.retry_failed)
        if left:
            self._find_solver()
        return writer, left

    @property
    def _family(self) -> CaseFamily:
        return get_family(self.family)

    def _find_solver(self) -> None:
        """Look for the solver here, or whether the cluster that solves sees the store."""
        cluster = load_settings().jobs_address
        if cluster:
            check_reach(cluster, self.url)
        else:
            find_openfoam(needed_applications(self._family, self.cores))


def to_solve(
    points: Sequence[DesignPoint], known: Mapping[str, Status], retry_failed: bool
) -> list[DesignPoint]:
    """Select the points not on record, withdrawn ones, and on request failed ones."""
    unsolved = {"withdrawn", "failed"} if retry_failed else {"withdrawn"}
    solved = {case for case, status in known.items() if status not in unsolved}
    return [point for point in points if point.id not in solved]
