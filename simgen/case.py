"""The contract of a case family, and the record that every case ends as.

A family is one module under `simgen/cases` plus its OpenFOAM dictionaries. It declares a design space, solver
settings with presets, patches and fields, and knows how to write a meshed case directory; solving, checking and
converting are the same for all families.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from simgen.design_space import DesignPoint, DesignSpace
from simgen.errors import InputError
from simgen.foam.log import SolverLog

#: `withdrawn` is what becomes of an accepted case that was taken back; no case ends so.
Status = Literal["accepted", "rejected", "failed", "withdrawn"]


@dataclass(frozen=True)
class Field:
    """A stored field: its name in datasets, unit and components, and OpenFOAM's name for it."""

    name: str
    unit: str
    components: tuple[str, ...]
    openfoam: str


@dataclass(frozen=True)
class Gate:
    """One acceptance check: the figure found, the limit it is held against, and whether it passed."""

    name: str
    value: float
    limit: str
    passed: bool
    unit: str = ""

    @classmethod
    def at_most(cls, name: str, value: float, limit: float, unit: str = "") -> Gate:
        """Passed where value <= limit; NaN passes nothing."""
        return cls(name, value, f"<= {limit:g}", value <= limit, unit)

    @classmethod
    def above(cls, name: str, value: float, limit: float, unit: str = "") -> Gate:
        """Passed where value > limit."""
        return cls(name, value, f"> {limit:g}", value > limit, unit)


@dataclass(frozen=True)
class Progress:
    """Where a running case stands; `fraction` of its horizon and the seconds it likely still needs."""

    case_id: str
    stage: str
    fraction: float
    message: str
    eta_s: float | None = None


@dataclass(frozen=True)
class SolvedCase:
    """A case directory whose solver has finished."""

    point: DesignPoint
    directory: Path


@dataclass(frozen=True)
class CaseResult:
    """How a case ended; plain data, small enough to travel between machines.

    `provenance` holds JSON-ready values: mesh figures, residual history, solver, solver_version, source_revision,
    wall_time_s by stage, host. `reason` is one line for rejected and failed cases; `log_tail` the solver's last lines.
    """

    point: DesignPoint
    status: Status
    reason: str = ""
    gates: tuple[Gate, ...] = ()
    log_tail: str = ""
    provenance: Mapping[str, Any] = field(default_factory=dict)

    @property
    def id(self) -> str:
        return self.point.id


class CaseFamily(ABC):
    """A family of simulations over one design space."""

    name: str
    revision: int
    title: str
    dimension: int
    design_space: DesignSpace
    settings_space: DesignSpace
    presets: Mapping[str, Mapping[str, float]]
    #: OpenFOAM patch name -> patch kind; the kinds' order is the order of the distance field's columns.
    patches: Mapping[str, str]
    fields: tuple[Field, ...]
    application: str
    transient: bool
    #: The setting that ends the solver: simulated time, or iterations of a steady solver.
    horizon: str = "end_time"
    #: A transient family's settings for how far apart its stored times lie, and its time step.
    snapshot_interval: str = "snapshot_interval"
    time_step: str = "time_step"
    #: Applications beside gmshToFoam, checkMesh and the solver that a case of this family runs.
    preparation: tuple[str, ...] = ()

    @property
    def patch_kinds(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(self.patches.values()))

    def settings(self, preset: str, overrides: Mapping[str, float] | None = None) -> dict[str, float]:
        """A preset's solver settings with single values replaced; InputError names an unknown preset or setting."""
        if preset not in self.presets:
            raise InputError(f"preset '{preset}' is unknown to {self.name}; choose one of {', '.join(self.presets)}")
        return self.settings_space.check({**self.presets[preset], **(overrides or {})})

    def point(self, parameters: Mapping[str, float], settings: Mapping[str, float]) -> DesignPoint:
        """The design point for checked parameters and settings."""
        return DesignPoint(
            self.name, self.revision, self.design_space.check(parameters), self.settings_space.check(settings)
        )

    @abstractmethod
    def write_case(self, point: DesignPoint, directory: Path) -> None:
        """Write a case directory with dictionaries and a polyMesh; raises MeshError."""

    def figures(self, case: SolvedCase, log: SolverLog) -> dict[str, float]:
        """What this family measures on a solved case beyond `simgen.acceptance.measure`: its monitors, residuals, y+."""
        return {}

    @abstractmethod
    def gates(self, case: SolvedCase, figures: Mapping[str, float]) -> list[Gate]:
        """The family's acceptance checks over the figures of `simgen.acceptance.measure` and its own."""
