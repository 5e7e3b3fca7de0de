"""Solved cases of the studies, kept under OUT/cases so that a study that was cut off goes on."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from simgen.case import CaseFamily, CaseResult, SolvedCase
from simgen.errors import CaseError
from simgen.solving.solve_case import solve_case


def solved(
    family: CaseFamily,
    parameters: Mapping[str, float],
    settings: Mapping[str, float],
    out: Path,
    *,
    preset: str = "trial",
) -> tuple[SolvedCase, CaseResult]:
    """The case and how it ended, whatever its gates say; CaseError where it failed."""
    point = family.point(parameters, family.settings(preset, settings))
    result = solve_case(point, out / "cases")
    if result.status == "failed":
        raise CaseError(f"{family.name} {point.id} failed: {result.reason}", result.log_tail)
    return SolvedCase(point, out / "cases" / point.id), result
