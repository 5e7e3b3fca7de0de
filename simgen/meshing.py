"""Write a case: its dictionaries, and its mesh, made with gmsh and imported into OpenFOAM.

One route serves every family: a plan view meshed with recombined quadrilaterals, extruded in
layers, written as MSH 2.2 and read by gmshToFoam. Physical surfaces become patches, whose types are
set afterwards.

gmsh, which is under the GPL, is imported where something is meshed: who only reads, trains and
predicts asks families for their quantities without it.
"""

import contextlib
import ctypes
import re
import signal
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from simgen.case import OPENINGS, Gate
from simgen.errors import InputError, MeshError, SolverError
from simgen.foam.log import mesh_figures
from simgen.foam.mesh import read_boundary


def load_gmsh() -> Any:
    """Import gmsh, which takes a while and shared libraries that only a mesher needs.

    InputError where it cannot be loaded.
    """
    try:
        import gmsh
    except (ImportError, OSError) as error:
        raise InputError(
            f"gmsh cannot be loaded ({error}): install the packages of infra/debian-packages"
        ) from error
    return gmsh


@contextlib.contextmanager
def gmsh_model(name: str) -> Iterator[Any]:
    """Open a fresh gmsh model and yield the gmsh module; errors inside become MeshError."""
    gmsh = load_gmsh()
    # interruptible=False: only a main thread may install gmsh's signal handler.
    gmsh.initialize(interruptible=False)
    # gmsh restores the default of SIGPIPE, by which a server that hangs up ends the process. Python
    # itself can ignore it again only in the main thread.
    libc_signal = ctypes.CDLL(None).signal
    libc_signal.argtypes, libc_signal.restype = (ctypes.c_int, ctypes.c_void_p), ctypes.c_void_p
    libc_signal(signal.SIGPIPE, int(signal.SIG_IGN))
    try:
        gmsh.option.setNumber("General.Terminal", 0)
        gmsh.option.setNumber("General.NumThreads", 1)
        gmsh.option.setNumber("Mesh.MshFileVersion", 2.2)
        # Only the size fields decide: sizes that come from boundaries would refine the whole
        # interior.
        for source in ("MeshSizeExtendFromBoundary", "MeshSizeFromPoints", "MeshSizeFromCurvature"):
            gmsh.option.setNumber(f"Mesh.{source}", 0)
        gmsh.model.add(name)
        gmsh.logger.start()
        yield gmsh
    except MeshError:
        raise
    except Exception as error:
        raise MeshError(
            f"gmsh could not mesh {name}: {error}", "\n".join(gmsh.logger.get()[-40:])
        ) from error
    finally:
        gmsh.logger.stop()  # else the next model's log begins with this one's
        gmsh.finalize()


def add_size(model: Any, kind: str, **options: float | str | Sequence[int]) -> int:
    """Add a size field of this kind of gmsh's with its options (m); return its tag."""
    field = model.mesh.field
    tag = field.add(kind)
    for option, value in options.items():
        if isinstance(value, str):
            field.setString(tag, option, value)
        elif isinstance(value, Sequence):
            field.setNumbers(tag, option, value)
        else:
            field.setNumber(tag, option, value)
    return int(tag)


def write_quadrilaterals(gmsh: Any, file: Path, size: int) -> None:
    """Mesh the model with cells as the size field asks, and write it.

    Frontal for quadrilaterals: no triangle was left in any trial.
    """
    gmsh.model.mesh.field.setAsBackgroundMesh(size)
    gmsh.option.setNumber("Mesh.Algorithm", 8)
    gmsh.option.setNumber("Mesh.RecombinationAlgorithm", 1)
    gmsh.model.mesh.generate(3)
    gmsh.write(str(file))


def import_mesh(
    mesh_file: Path, directory: Path, patch_types: Mapping[str, str], *, baffles: bool = False
) -> None:
    """Convert a .msh into `directory`'s polyMesh and give its patches their OpenFOAM types.

    With `baffles`, faces inside the mesh become walls, as system/createBafflesDict asks.
    """
    from simgen.foam.run import run_application

    try:
        run_application("gmshToFoam", directory, arguments=(mesh_file.name,))
        if baffles:
            run_application("createBaffles", directory, arguments=("-overwrite",))
    except SolverError as error:
        raise MeshError(str(error), error.log_tail) from error
    set_patch_types(directory / "constant/polyMesh/boundary", patch_types)


def types_of(patches: Mapping[str, str]) -> dict[str, str]:
    """Return OpenFOAM's types of patches whose kinds are given: an opening, or a wall."""
    return {name: "patch" if kind in OPENINGS else "wall" for name, kind in patches.items()}


def set_patch_types(boundary: Path, patch_types: Mapping[str, str]) -> None:
    """Give the patches of a mesh's `boundary` their types; MeshError for further ones."""
    found = read_boundary(boundary)
    if unknown := [name for name in found if name not in patch_types]:
        raise MeshError(
            f"the mesh has a patch {unknown[0]} that the family does not name:"
            " some faces were left untagged"
        )
    text = re.sub(r"\n\s*physicalType\s[^;]*;", "", boundary.read_text())
    for name, patch_type in patch_types.items():
        of_patch = rf"(?<=\s){re.escape(name)}(\s*\{{[^}}]*?\btype\s+)\w+;"
        text = re.sub(of_patch, rf"{name}\g<1>{patch_type};", text)
    boundary.write_text(text)


def check_mesh(directory: Path, time_limit_s: float | None = None) -> dict[str, float]:
    """Run checkMesh and return its figures (see `simgen.foam.log.mesh_figures`).

    Raises MeshError where it printed none, SolverError where it failed or passed its time limit.
    """
    from simgen.foam.run import run_application

    log, _ = run_application("checkMesh", directory, time_limit_s=time_limit_s)
    figures = mesh_figures((directory / "checkMesh.logfile").read_text(errors="replace"))
    missing = [name for name in ("num_cells", "max_non_orthogonality") if name not in figures]
    if missing:
        raise MeshError(f"checkMesh printed no {', '.join(missing)}", "\n".join(log.tail))
    return figures


MAX_NON_ORTHOGONALITY = 65.0


def mesh_gates(figures: Mapping[str, float]) -> tuple[Gate, ...]:
    """Judge the figures of checkMesh: no failed check, and no face too oblique for the solver."""
    angle = figures["max_non_orthogonality"]
    return (
        Gate.at_most("mesh checks failed", figures["failed_checks"], 0),
        Gate.at_most("mesh non-orthogonality", angle, MAX_NON_ORTHOGONALITY, "deg"),
    )


def write_dictionaries(templates: Path, directory: Path, values: Mapping[str, float | str]) -> None:
    """Fill every file under `templates`, `|-name-|` by its value, into its place in `directory`.

    Words and whole numbers are written as they are, other numbers with all their digits. An unknown
    name is an error.
    """
    # Where something is written: a family can be asked for its quantities without PyFoam.
    from PyFoam.Basics.TemplateFile import TemplateFile

    written = {
        name: str(value) if isinstance(value, str | int) else repr(float(value))
        for name, value in values.items()
    }
    for source in sorted(path for path in templates.rglob("*") if path.is_file()):
        target = directory / source.relative_to(templates)
        target.parent.mkdir(parents=True, exist_ok=True)
        template = TemplateFile(name=str(source), expressionDelimiter="|-", encoding="utf-8")
        template.writeToFile(str(target), written)
