"""Studies that a CFD engineer asks for before trusting a dataset; each prints a table and writes
JSON (docs/validation.md). Solved cases are kept under OUT/cases: a study that was cut off goes on.
"""

from collections.abc import Mapping
from pathlib import Path

from simgen.case import CaseFamily, CaseResult, SolvedCase
from simgen.errors import CaseError
from simgen.solving.solve_case import solve_case


def solved(
    family: CaseFamily, parameters: Mapping[str, float], settings: Mapping[str, float], out: Path
) -> tuple[SolvedCase, CaseResult]:
    """The case and how it ended, whatever its gates found; CaseError where it failed."""
    point = family.point(parameters, family.settings("trial", settings))
    result = solve_case(point, out / "cases")
    if result.status == "failed":
        raise CaseError(f"{family.name} {point.id} failed: {result.reason}", result.log_tail)
    return SolvedCase(point, out / "cases" / point.id), result
