"""Find the OpenFOAM cases under a folder, and the parts that each is stored in.

A case is a directory with a mesh, with parts of a decomposed mesh, or with a system/controlDict.
Its parts are the directory itself, or its processor directories where these hold the solution.
"""

from __future__ import annotations

import gzip
import os
import re
import zlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from simgen.errors import CaseError
from simgen.foam.geometry import read_geometry
from simgen.foam.mesh_files import time_directories, time_of
from simgen.imports.told import told

_PROCESSOR = re.compile(r"processor(\d+)")
_COLLATED = re.compile(r"processors\d+(_\d+-\d+)?")
_NUM_CELLS = re.compile(rb"nCells:\s*(\d+)")
HEAD_BYTES = 2048


def find_cases(
    folder: Path, on_left_out: Callable[[Path, str], None] = lambda path, why: None
) -> Iterator[Path]:
    """Yield the case directories at and below `folder`, in order of their paths.

    A case may have others beside its own directories. Links to directories are followed if they
    are cases; other links and what cannot be read are passed to `on_left_out` with the reason.
    """
    if is_case(folder):
        yield folder
    for path, folders, _ in os.walk(
        folder, onerror=lambda error: on_left_out(Path(error.filename), f"{error.strerror}")
    ):
        here = Path(path)
        if is_case(here):
            folders[:] = [name for name in folders if not _is_part_of_case(name)]
        folders.sort()
        for name in folders:
            if is_case(here / name):
                yield here / name
            elif (here / name).is_symlink():
                on_left_out(here / name, "it links to a folder that is no case")


def _is_part_of_case(name: str) -> bool:
    own = ("constant", "system", "postProcessing", "VTK", "dynamicCode")
    return name in own or name.startswith("processor") or time_of(name) is not None


def is_case(directory: Path) -> bool:
    """Tell whether the directory is an OpenFOAM case, solved or not.

    One that must not be read may be one: that is told when it is surveyed.
    """
    try:
        return (
            has_file(directory / "system/controlDict")
            or bool(regions_of(directory))
            or (directory / "constant/polyMesh").is_dir()
            or (directory / "processor0").is_dir()
        )
    except PermissionError:
        return True


def regions_of(directory: Path) -> list[str]:
    """List the regions that have a mesh of their own."""
    return sorted(
        path.parent.name for path in (directory / "constant").glob("*/polyMesh") if path.is_dir()
    )


def has_file(path: Path) -> bool:
    """Tell whether OpenFOAM would find this file, packed or not."""
    return path.is_file() or path.with_name(f"{path.name}.gz").is_file()


def parts_of(directory: Path, region: str, fields: Sequence[str]) -> tuple[Path, ...]:
    """Return the directories that hold the case's mesh, and the times of these fields.

    Processors without cells are left out. CaseError where there is no mesh, or where two meshes of
    different sizes lie in one case.
    """
    serial = has_file(directory / "constant" / region / "polyMesh" / "points")
    processors = processors_of(directory)
    stored = max(
        (solved_times(part, region, fields) for part in processors), key=_by_end, default=[]
    )
    if processors and (stored or not serial):
        if serial:
            _check_same_mesh(directory, processors, region)
        # reconstructPar -latestTime leaves all other times in the parts.
        if not serial or _by_end(stored) > _by_end(solved_times(directory, region, fields)):
            if parts := tuple(part for part in processors if num_cells(part, region)):
                return parts
            raise CaseError("its mesh has no cells")
    if not serial:
        raise CaseError(_no_mesh(directory, region))
    return (directory,)


def solved_times(part: Path, region: str, fields: Sequence[str]) -> list[tuple[float, str]]:
    """List the times after 0, with their directories' names, that have any of these fields."""
    return [
        (time, path.name)
        for time, path in time_directories(part)
        if any(has_file(path / region / name) for name in fields)
    ]


def processors_of(directory: Path) -> tuple[Path, ...]:
    found = [path for path in directory.glob("processor*") if path.is_dir()]
    if collated := [path.name for path in found if _COLLATED.fullmatch(path.name)]:
        raise CaseError(
            f"it is stored in OpenFOAM's collated format ({collated[0]}); put it together first,"
            " with reconstructPar"
        )
    numbered = {int(each[1]): path for path in found if (each := _PROCESSOR.fullmatch(path.name))}
    if sorted(numbered) != list(range(len(numbered))):
        missing = min(set(range(len(numbered))) - set(numbered))
        raise CaseError(f"its part processor{missing} is missing")
    return tuple(numbered[number] for number in range(len(numbered)))


def _by_end(times: list[tuple[float, str]]) -> tuple[float, int]:
    return (times[-1][0] if times else 0.0), len(times)


def _check_same_mesh(directory: Path, processors: tuple[Path, ...], region: str) -> None:
    whole = num_cells(directory, region)
    parts = sum(num_cells(part, region) for part in processors)
    if whole != parts:
        raise CaseError(
            f"it holds two meshes: constant/polyMesh of {whole} cells, and processor0 to"
            f" processor{len(processors) - 1} of {parts}; delete the one that is out of date"
        )


def num_cells(directory: Path, region: str) -> int:
    """Return the number of cells, from the header of `owner` where it says so."""
    path = directory / "constant" / region / "polyMesh" / "owner"
    found = _NUM_CELLS.search(read_head(path))
    if found:
        return int(found[1])
    return len(read_geometry(directory, region).centres)


def read_head(path: Path) -> bytes:
    """Return the first bytes of a file, unpacked where only `<path>.gz` is there."""
    packed = path.with_name(f"{path.name}.gz")
    try:
        with path.open("rb") if path.exists() else gzip.open(packed) as file:
            return file.read(HEAD_BYTES)
    except (OSError, EOFError, zlib.error) as error:
        raise CaseError(f"{path} cannot be read: {told(error)}") from error


def _no_mesh(directory: Path, region: str) -> str:
    regions = regions_of(directory)
    if region:
        return f"it has no region {region}; it has {', '.join(regions) or 'none'}"
    if regions:
        return f"it has a mesh for each of {', '.join(regions)}; choose one with --region"
    return "it has no mesh in constant/polyMesh"
