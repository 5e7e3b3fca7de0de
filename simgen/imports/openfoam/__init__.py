"""Import a folder of solved OpenFOAM cases that this project did not make.

Cases may be serial or decomposed, ascii, binary or packed, of any cells and patches. Their files
are read and never written.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Callable
from dataclasses import replace

from simgen.errors import InputError
from simgen.imports.folder_plan import FolderPlan, import_plan, plan_folder
from simgen.imports.importing import Imported
from simgen.imports.openfoam.finding import find_cases
from simgen.imports.openfoam.reading import read_case
from simgen.imports.openfoam.survey import FoamOptions, survey_case
from simgen.imports.surveyed import Asked

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
    directories = {
        directory.relative_to(asked.folder).as_posix(): directory
        for directory in find_cases(asked.folder)
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
        on_progress=on_progress,
    )
    patches = sorted({patch for case in plan.cases for patch in case.details.patches})
    unused = [
        f"--kind {pattern}={kind} is of no patch; they are {', '.join(patches)}"
        for pattern, kind in options.kinds.items()
        if not any(fnmatch.fnmatchcase(patch, pattern) for patch in patches)
    ]
    return replace(plan, notes=(*plan.notes, *unused))


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
