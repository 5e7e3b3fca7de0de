"""Stage `generate`: design points -> solved cases -> a published dataset version.

The dataset is the truth about what is done: points that it has on record are not solved again.
Killed at any moment, the same request goes on from there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import simgen
from flows.request_models import GenerationRequest
from flows.settings import absolute, check_job_reach, load_settings
from flows.solving import Execution, solve_cases
from flows.terminal import announce
from simgen.case import Status
from simgen.cases import get_family
from simgen.design_space import DesignPoint, unique
from simgen.errors import InputError
from simgen.foam.run import find_openfoam
from simgen.solving.case_lock import make_scratch
from simgen.solving.solve_case import needed_applications
from simgen.store.schema import Schema
from simgen.store.versions import read_on_record, repository_exists
from simgen.store.write import DatasetWriter
from simgen.whole_file import local_path

SolveCases = Callable[[Sequence[DesignPoint], DatasetWriter, Execution], None]


@dataclass(frozen=True)
class PublishedVersion:
    """Name a version of a dataset; the stages pass it on."""

    dataset: str
    version: str

    def line(self) -> str:
        """Describe its content: `cylinder-flow v1: 8 cases (5 train, ...) at <url>`."""
        return repr(simgen.open_dataset(self.dataset, self.version)).strip("<>")


class Generation(GenerationRequest):
    """Solve the points that a dataset does not have yet, and publish a version."""

    @property
    def url(self) -> str:
        """Return the dataset's URL: a store has one dataset of each family."""
        return f"{absolute(self.store or load_settings().store).rstrip('/')}/{self.family}"

    @property
    def remake(self) -> dict[str, Any]:
        """Return the parameters that make the version again, for its record."""
        names = "family cases sampler seed preset settings designs design_parameters"
        given = {name: getattr(self, name) for name in (*names.split(), "time_limit_s", "split")}
        return {**given, "preset": self._preset, "settings": self.settings or {}}

    @property
    def _preset(self) -> str:
        return self.preset or get_family(self.family).usual_preset

    @cached_property
    def points(self) -> list[DesignPoint]:
        """The points to solve: sampled, given, or as `designs` says."""
        family, settings = get_family(self.family), self.settings or {}
        values = family.settings(self._preset, settings)
        if self.designs and self.design_parameters is not None:
            raise InputError("designs and design_parameters both name the designs; give one")
        if self.design_parameters is not None:
            if not self.design_parameters:
                raise InputError("design_parameters names no design; leave it out to sample some")
            designs = self.design_parameters
        elif not self.designs:
            designs = family.design_space.sample(self.cases, self.sampler, self.seed)
        elif local_path(self.designs).is_file() or not repository_exists(absolute(self.designs)):
            designs = family.design_space.read_csv(local_path(self.designs))
        else:
            dataset = simgen.open_dataset(absolute(self.designs))
            if dataset.schema.family != self.family:
                raise InputError(
                    f"--designs {dataset.url} holds {dataset.schema.family}, not {self.family}"
                )
            cases = [dataset[case] for case in dataset.cases("test")]
            if not cases:
                raise InputError(f"--designs {dataset.url} {dataset.version} has no test case")
            each = [family.settings(self._preset, {**c.settings, **settings}) for c in cases]
            return unique([family.point(c.parameters, s) for c, s in zip(cases, each, strict=True)])
        return unique([family.point(design, values) for design in designs])

    def done(self) -> PublishedVersion | None:
        """Return the newest version if it holds all on record, and all points are on record."""
        points = self.points
        record = read_on_record(self.url)
        if record is None:
            return None
        record.schema.check_family(Schema.of(get_family(self.family)), self.url)
        if record.version is None or not record.is_published:
            return None
        left = to_solve(points, record.known, self.retry_failed)
        return None if left else PublishedVersion(self.url, record.version)

    def check(self) -> None:
        """Find the solver, make the scratch folder, and open the store.

        A new store is created, since nothing else shows whether it can be written.
        """
        settings = load_settings()
        if not settings.ray_address:
            make_scratch(Path(settings.scratch))
        self.open()

    def execute(self, solve: SolveCases = solve_cases) -> PublishedVersion:
        """Solve the points that are left, here or on the cluster, and publish a version.

        Here they are solved by `solve`. A job's request names all points,
        however many are solved by now: it stays the same request, and so the same job.
        """
        writer, left = self.open()
        execution = Execution(self.time_limit_s, self.cores, self.archive_raw, self.split)
        if left and load_settings().jobs_address:
            from flows.ray_jobs import JobRequest, run_job

            store, _, family = self.url.rpartition("/")
            request = {
                "points": [asdict(point) for point in self.points],
                "dataset": self.url,
                "execution": asdict(execution),
                "retry_failed": self.retry_failed,
            }
            run_job(JobRequest("solve", family, store, request), announce)
        elif left:
            solve(left, writer, execution)
        message = f"{self.family}: {self._preset} preset, {len(self.points)} designs"
        published = PublishedVersion(self.url, writer.publish(message, self.remake))
        announce(published.line())
        return published

    def open(self) -> tuple[DatasetWriter, list[DesignPoint]]:
        """Return the dataset's writer and the points that are left to solve.

        InputError where that needs a solver which is not there, StoreError where the store cannot
        be written.
        """
        family = get_family(self.family)

        def find_solver() -> None:
            if load_settings().jobs_address:
                check_job_reach(self.url)
            else:
                find_openfoam(needed_applications(family, self.cores))

        if not repository_exists(self.url):
            # Before there is anything on disk; a dataset that has all designs needs no solver.
            find_solver()
        writer = DatasetWriter.open(self.url, Schema.of(family))
        left = to_solve(self.points, writer.known(), self.retry_failed)
        if left:
            find_solver()
        return writer, left


def to_solve(
    points: Sequence[DesignPoint], known: Mapping[str, Status], retry_failed: bool
) -> list[DesignPoint]:
    """Select the points not on record, withdrawn ones, and on request failed ones."""
    unsolved = {"withdrawn", "failed"} if retry_failed else {"withdrawn"}
    solved = {case for case, status in known.items() if status not in unsolved}
    return [point for point in points if point.id not in solved]
