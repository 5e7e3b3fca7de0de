"""Import a folder of solved OpenFOAM cases that this project did not make.

Cases may be serial or decomposed, ascii, binary or packed, of any cells and patches. Their files
are read and never written.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np

from simgen.errors import InputError
from simgen.imports.folder_plan import FolderPlan, Refusal, import_plan, plan_folder
from simgen.imports.importing import Imported
from simgen.imports.openfoam.finding import find_cases
from simgen.imports.openfoam.reading import read_case
from simgen.imports.openfoam.survey import SAME_TIME, FoamOptions, survey_case
from simgen.imports.surveyed import Asked, Surveyed

__all__ = ["FoamOptions", "import_openfoam", "plan_openfoam"]

OnProgress = Callable[[int, int], None]


def plan_openfoam(
    asked: Asked, options: FoamOptions, on_progress: OnProgress = lambda done, total: None
) -> FolderPlan:
    """Survey the cases of a folder; InputError where there is none to import."""
    if not asked.folder.is_dir():
        raise InputError(f"{asked.folder} is no folder")
    if asked.table and (twice := sorted(options.parameters.keys() & asked.table.units.keys())):
        raise InputError(
            f"--parameter {twice[0]} is a column of {asked.table.path} as well; leave one of them"
            " out"
        )
    left_out: list[Refusal] = []

    def leave_out(path: Path, why: str) -> None:
        left_out.append(Refusal(path.relative_to(asked.folder).as_posix(), why))

    directories = {
        directory.relative_to(asked.folder).as_posix(): directory
        for directory in find_cases(asked.folder, leave_out)
    }
    # A folder that is a case itself is called by its own name.
    directories = {
        asked.folder.resolve().name if place == "." else place: directory
        for place, directory in directories.items()
    }
    if not directories:
        raise InputError(
            f"{asked.folder} holds no OpenFOAM case: no directory in it has a constant/polyMesh, a"
            " processor0 or a system/controlDict"
        )
    plan = plan_folder(
        asked,
        list(directories),
        lambda place: survey_case(directories[place], place, asked, options),
        boundary=True,
        volumes=True,
        way_to_one_interval="; --interval SECONDS interpolates to one",
        on_progress=on_progress,
    )
    patches = sorted({patch for case in plan.cases for patch in case.details.patches})
    unused = [
        f"--kind {pattern}={kind} is of no patch; they are {', '.join(patches)}"
        for pattern, kind in options.kinds.items()
        if not any(fnmatch.fnmatchcase(patch, pattern) for patch in patches)
    ]
    between = [
        f"{case.place}: {number} of its {len(case.times or ())} times lie between stored ones, and"
        " have values that are interpolated linearly"
        for case in plan.cases
        if (number := _num_between(case))
    ]
    return replace(
        plan, left_out=(*left_out, *plan.left_out), notes=(*plan.notes, *unused, *between)
    )


def _num_between(case: Surveyed) -> int:
    """Return how many times of a case are not among those that it has stored."""
    if case.times is None:
        return 0
    stored = np.array([time for time, _ in case.details.times])
    asked = np.array(case.times)
    return int((np.abs(asked[:, None] - stored).min(axis=1) > SAME_TIME * asked).sum())


def import_openfoam(
    plan: FolderPlan,
    options: FoamOptions,
    *,
    on_progress: OnProgress = lambda done, total: None,
    on_refused: Callable[[str, str], None] = lambda case, why: None,
) -> Imported:
    """Import what was planned, and publish it as a version."""
    return import_plan(
        plan,
        lambda case: read_case(case, plan.schema, options),
        on_progress=on_progress,
        on_refused=on_refused,
    )


def patches_by_kind(plan: FolderPlan) -> dict[str, list[str]]:
    """Return the names of the patches that stand for each kind, in all cases together."""
    found: dict[str, set[str]] = {kind: set() for kind in plan.schema.patch_kinds}
    for case in plan.cases:
        for patch, kind in case.details.kinds.items():
            found.setdefault(kind, set()).add(patch)
    return {kind: sorted(patches) for kind, patches in found.items()}
