"""Define the acceptance gates that every mesh has to pass, whatever is solved on it."""

from __future__ import annotations

from collections.abc import Mapping

from simgen.case import Gate

MAX_NON_ORTHOGONALITY = 65.0


def mesh_gates(figures: Mapping[str, float]) -> tuple[Gate, ...]:
    """Judge the figures of checkMesh: no failed check, and no face too oblique for the solver."""
    angle = figures["max_non_orthogonality"]
    return (
        Gate.at_most("mesh checks failed", figures["failed_checks"], 0),
        Gate.at_most("mesh non-orthogonality", angle, MAX_NON_ORTHOGONALITY, "deg"),
    )
