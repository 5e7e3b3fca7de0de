"""Define the contract of a case family, and the result that every case ends with.

A family declares a design space, solver settings with presets, patches and fields, and knows how to
write a meshed case directory. Solving, checking and converting are the same for all families.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np

from simgen.design_space import DesignPoint, DesignSpace
from simgen.errors import InputError
from simgen.foam.log import SolverLog
from simgen.point_cloud import BoundaryCloud
from simgen.quantities import Quantity

#: `withdrawn` marks a case whose verdict was taken back later; no solve ends with it, and the next
#: generation of its design solves it again.
Status = Literal["accepted", "rejected", "failed", "withdrawn"]

#: Kinds of patches that fluid flows through; a family without any has no flux.
OPENINGS = {"inlet", "outlet"}
Role = Literal["given", "solved"]
SampleLine = tuple[tuple[float, float, float], tuple[float, float, float]]
"""The ends of a line, in m"""


def is_spatial(component: str) -> bool:
    """Whether a component is one of a vector or tensor along the axes, such as y or xy."""
    return bool(component) and set(component) <= set("xyz")


@dataclass(frozen=True)
class Field:
    """A stored field: its name in datasets, unit and components, and OpenFOAM's name for it."""

    name: str
    unit: str
    components: tuple[str, ...]
    openfoam: str = ""
    """Empty where OpenFOAM did not write it"""
    role: Role = "solved"
    """Solved fields are what models learn; given ones, such as a permeability, are inputs"""
    on_boundary: bool = True
    """Whether the boundary cloud has it too, where there is one"""


@dataclass(frozen=True)
class Gate:
    """One acceptance check: the figure found, its limit, and whether it passed."""

    name: str
    value: float
    limit: str
    passed: bool
    unit: str = ""

    @classmethod
    def at_most(cls, name: str, value: float, limit: float, unit: str = "") -> Self:
        """Return a gate that passes where value <= limit; NaN never passes."""
        return cls(name, value, f"<= {limit:g}", value <= limit, unit)


@dataclass(frozen=True)
class Progress:
    case_id: str
    stage: str
    fraction: float
    """Relative to its horizon"""
    message: str
    eta_s: float | None = None


@dataclass(frozen=True)
class SolvedCase:
    """A case directory whose solver has finished."""

    point: DesignPoint
    directory: Path


@dataclass(frozen=True)
class CaseResult:
    """The result of a case; plain data, small enough to travel between machines.

    `provenance` holds JSON-ready values: mesh figures, residual history, solver, solver_version,
    source_revision, wall_time_s and cpu_time_s by stage, host. `reason` is one line for rejected
    and failed cases; `log_tail` holds the solver's last lines.
    """

    point: DesignPoint
    status: Status
    reason: str = ""
    gates: tuple[Gate, ...] = ()
    log_tail: str = ""
    provenance: Mapping[str, Any] = field(default_factory=dict)
    name: str = ""
    """Name of an imported case, which has no design point to take an id from"""
    split: str | None = None
    """The split in which the source of an imported case published it, or which was asked for"""

    @property
    def id(self) -> str:
        return self.name or self.point.id


class CaseFamily(ABC):
    """A family of simulations over one design space."""

    name: str
    revision: int
    title: str
    dimension: int
    design_space: DesignSpace
    #: Design parameters that leave the mesh as it is, such as the velocity at an inlet.
    flow_parameters: tuple[str, ...] = ()
    settings_space: DesignSpace
    presets: Mapping[str, Mapping[str, float]]
    #: OpenFOAM patch name -> patch kind. The kinds' order is the order of the distance field's
    #: columns.
    patches: Mapping[str, str]
    fields: tuple[Field, ...]
    #: What an engineer asks of a case; `figures` measures each on a solved one.
    quantities: tuple[Quantity, ...] = ()
    application: str
    transient: bool
    #: The setting that ends the solver: simulated time, or the iterations of a steady solver.
    horizon: str = "end_time"
    #: A transient family's settings for the interval of its stored times, and for its time step.
    snapshot_interval: str = "snapshot_interval"
    time_step: str = "time_step"
    #: Simulated seconds that the start of a transient case takes. Its times are stored, but left
    #: out of the statistics that models are normalised by: one snapshot of a sudden start may
    #: outweigh all others.
    startup_s: float = 0.0
    #: Applications that a case of this family runs besides gmshToFoam, checkMesh and the solver.
    preparation: tuple[str, ...] = ()
    #: Digest of the files of a template, by which two of one name differ.
    content: str = ""

    @property
    def patch_kinds(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(self.patches.values()))

    @property
    def usual_preset(self) -> str:
        """The preset that is taken where none is named: `trial`, or else the first."""
        return "trial" if "trial" in self.presets else next(iter(self.presets))

    def options(self, settings: Mapping[str, float]) -> str:
        """Return ` --set NAME=VALUE` for each of the settings that is not the usual preset's."""
        changed = settings.items() - self.presets[self.usual_preset].items()
        return "".join(f" --set {name}={value:.12g}" for name, value in sorted(changed))

    def settings(
        self, preset: str, overrides: Mapping[str, float] | None = None
    ) -> dict[str, float]:
        """Return a preset's solver settings with single values replaced."""
        if preset not in self.presets:
            raise InputError(
                f"preset '{preset}' is unknown to {self.name}; choose one of"
                f" {', '.join(self.presets)}"
            )
        return self.check_settings({**self.presets[preset], **(overrides or {})})

    def check_settings(self, settings: Mapping[str, float]) -> dict[str, float]:
        """Return the settings, rounded.

        InputError for one that is out of range, for stored times that miss the solver's end, and
        for a part of an iteration.
        """
        checked = self.settings_space.check(settings, "settings")
        end, interval, step = (
            checked.get(name) for name in (self.horizon, self.snapshot_interval, self.time_step)
        )
        units = {each.name: each.unit for each in self.settings_space.parameters}
        if end is not None and units[self.horizon] == "1" and end != int(end):
            raise InputError(f"{self.horizon} = {end:g} is no whole number of iterations")
        if not self.transient or end is None or interval is None:
            return checked
        number = end / interval
        if round(number) < 1 or abs(number - round(number)) > 1e-6 * number:
            raise InputError(
                f"{self.horizon} = {end:g} s is no multiple of {self.snapshot_interval} ="
                f" {interval:g} s: a case is stored at these times, and its last is its end"
            )
        if step is not None and step > interval:
            raise InputError(
                f"{self.time_step} = {step:g} s is longer than {self.snapshot_interval} ="
                f" {interval:g} s; choose a shorter step"
            )
        return checked

    def notes(self) -> Iterable[str]:
        """Return lines that a user reads before the designs are solved."""
        return ()

    def point(self, parameters: Mapping[str, float], settings: Mapping[str, float]) -> DesignPoint:
        """Return the design point of checked parameters and settings."""
        return DesignPoint(
            self.name,
            self.revision,
            self.design_space.check(parameters),
            self.check_settings(settings),
        )

    @abstractmethod
    def write_case(self, point: DesignPoint, directory: Path) -> None:
        """Write a case directory with dictionaries and a polyMesh; raise MeshError on failure."""

    def figures(self, case: SolvedCase, log: SolverLog) -> dict[str, float]:
        """Measure the family's own figures: quantities, monitors, residuals, y+."""
        return {}

    def prescribed(self, point: DesignPoint, boundary: BoundaryCloud) -> dict[str, np.ndarray]:
        """Return fields (B, C) on a meshed boundary, as far as they are prescribed there.

        They are the boundary conditions of a design that nobody has solved.
        """
        return {}

    def lines(self, parameters: Mapping[str, float]) -> Mapping[str, SampleLine]:
        """Return the lines, by name, along which a report compares profiles; none: its own."""
        return {}

    def settled_from_s(self, settings: Mapping[str, float]) -> float:
        """Return the time from which a transient case's quantities are taken."""
        return self.startup_s

    @abstractmethod
    def gates(self, case: SolvedCase, figures: Mapping[str, float]) -> list[Gate]:
        """Return the family's acceptance checks of all that `simgen.solving.gates` measured."""
