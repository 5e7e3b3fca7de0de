"""Read how a run went: status.json, timings.json and environment.json.

They are checked, since they may be somebody else's; an interrupted run does not have all of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from pydantic import BaseModel, ConfigDict, model_validator

from courant.runs.directory import M, RunDirectory
from courant.runs.record import State

# Further entries are ignored.
_CONFIG = ConfigDict(extra="ignore", frozen=True)


class Timings(BaseModel):
    """Seconds by part of a run."""

    model_config = _CONFIG
    load: float
    train: float
    validation: float
    checkpoint: float


class Status(BaseModel):
    """The state of a run."""

    model_config = _CONFIG
    state: State
    best_epoch: int | None = None
    """The epoch whose weights are kept; None before the end"""

    @model_validator(mode="after")
    def _ended(self) -> Self:
        if self.state == "finished" and self.best_epoch is None:
            raise ValueError("a finished run names its best_epoch")
        return self


class Environment(BaseModel):
    """The machine and software of a run."""

    model_config = _CONFIG
    device: str
    workers: int


@dataclass(frozen=True)
class Course:
    """The course of a run; None for files that the run does not have."""

    status: Status | None
    timings: Timings | None
    environment: Environment | None


def read_course(run: RunDirectory) -> Course:
    """Read the files; StoreError where they are not what a run writes."""
    return Course(
        _read(run, "status.json", Status),
        _read(run, "timings.json", Timings),
        _read(run, "environment.json", Environment),
    )


def _read(run: RunDirectory, name: str, kind: type[M]) -> M | None:
    return run.read_record(name, kind) if run.exists(name) else None
